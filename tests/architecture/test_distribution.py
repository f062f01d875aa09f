"""What is shipped: every module and its data in the wheel, nothing else; every entry point loads; commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import typer

from shared import __version__
from tests.architecture.sources import PACKAGES, ROOT, modules, named

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True, capture_output=True, timeout=110,
    )  # fmt: skip
    (path,) = folder.glob("isthmus-*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_module_and_no_test(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {named(path) for path in modules()} <= names
    beside = {name for name in names if name.split("/")[0] not in PACKAGES}
    assert {name.partition(".data/data/")[2] for name in beside} == {"share/isthmus/cloud-cpu.txt"}
    assert [name for name in names if name.endswith(".pyc") or "__pycache__" in name] == []
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_the_wheel_carries_licence_and_readme(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert any(name.endswith("LICENSE") for name in names)
    (meta,) = [name for name in names if name.endswith(".dist-info/METADATA")]
    text = wheel.read(meta).decode()
    assert f"Version: {__version__}" in text
    assert "# Isthmus" in text


def test_version_is_said_once_and_the_same() -> None:
    assert _PROJECT["version"] == __version__


def test_every_contributed_command_loads() -> None:
    points = metadata.entry_points(group="isthmus.commands")
    assert {point.name for point in points} == set(_PROJECT["entry-points"]["isthmus.commands"])
    for point in points:
        assert isinstance(point.load(), typer.Typer)


def _command_lines() -> list[str]:
    """Every `isthmus …` of the documents, as in a shell line or in backticks."""
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    text = "\n".join(path.read_text() for path in documents)
    return sorted(set(re.findall(r"(?:^|`|\$ )isthmus((?: [a-z]+)+)", text, re.MULTILINE)))


def test_the_documents_name_commands() -> None:
    assert len(_command_lines()) > 5


@pytest.mark.parametrize("words", _command_lines())
def test_a_command_of_the_documents_exists(words: str) -> None:
    from shared import cli

    group: object = typer.main.get_command(cli.app)
    context = typer.Context(group)  # type: ignore[arg-type]  # typer's own command class
    for word in words.split():
        if not isinstance(group, typer.core.TyperGroup):
            break
        command = group.get_command(context, word)
        assert command is not None, f"isthmus{words}: there is no {word}"
        group = command


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_make_target_of_the_documents_exists() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named_targets = {
        name for path in documents for name in re.findall(r"(?:`|^)make ([a-z-]+)", path.read_text(), re.MULTILINE)
    }
    assert named_targets
    assert named_targets <= _targets()


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{named(path)}: {link}"
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text())
        if "://" not in link and not (path.parent / link).exists()
    ]
    assert broken == []


def test_the_layout_is_the_one_that_is_described() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    folders = [path for name in PACKAGES for path in (ROOT / name).iterdir() if (path / "__init__.py").is_file()]
    assert [named(path) for path in folders if f"{named(path)}" not in text] == []
    assert Path(ROOT / "docs" / "adr").is_dir()
