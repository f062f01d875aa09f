"""Import contracts: each one matches modules that exist, and a broken import is really found."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import PACKAGES, ROOT

_TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
_CONTRACTS: list[dict[str, Any]] = _TOOL["contracts"]
_TIERS = ("edge", "router", "cloud")


def _exists(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path.is_dir() and any(path.glob("*.py")))


def _layers(contract: dict[str, Any]) -> list[str]:
    names = [name.strip() for layer in contract["layers"] for name in layer.split("|")]
    containers = contract.get("containers", [""])
    return [f"{container}.{name}".lstrip(".") for container in containers for name in names]


def test_every_package_of_the_wheel_is_under_contract() -> None:
    assert set(_TOOL["root_packages"]) == set(PACKAGES)


@pytest.mark.parametrize("contract", _CONTRACTS, ids=lambda contract: str(contract["id"]))
def test_a_contract_matches_something(contract: dict[str, Any]) -> None:
    """A contract over a module that was renamed would hold for ever."""
    named = _layers(contract) if contract["type"] == "layers" else contract["source_modules"]
    assert named
    assert [name for name in named if not _exists(name)] == []
    ours = [name for name in contract.get("forbidden_modules", []) if name.split(".")[0] in PACKAGES]
    assert [name for name in ours if not _exists(name)] == []


@pytest.mark.parametrize("tier", _TIERS)
def test_every_module_of_a_tier_stands_in_a_layer(tier: str) -> None:
    """What stands in no layer may import anything."""
    (contract,) = [each for each in _CONTRACTS if each.get("containers") == [tier]] or [None]
    if contract is None:
        pytest.fail(f"no contract orders the inside of {tier}")
    layered = {name.split(".")[1] for name in _layers(contract)}
    inside = {path.stem for path in (ROOT / tier).iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert inside - layered - {"__init__"} == set()


def _lint(tree: Path) -> subprocess.CompletedProcess[str]:
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent)) or shutil.which("lint-imports")
    assert tool, "import-linter is not installed"
    return subprocess.run(
        [tool, "--no-cache"], cwd=tree, capture_output=True, text=True, check=False, timeout=110,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tree)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("edge/settings.py", "import router.settings", "Imports point down"),
        ("shared/keys.py", "import cloud.settings", "Imports point down"),
        ("router/policy/model.py", "import time", "Policy modules"),
        ("router/policy/model.py", "import redis", "Policy modules"),
    ],
)
def test_an_import_that_a_contract_forbids_is_found(tmp_path: Path, module: str, line: str, broken: str) -> None:
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / module).open("a") as file:
        file.write(f"\n{line}\n")
    result = _lint(tmp_path)
    assert result.returncode != 0
    # Rich wraps and repeats names, so the verdict is read from the text without its line breaks.
    text = " ".join(result.stdout.split())
    verdict = text[text.index(broken) :]
    assert 0 < verdict.find("BROKEN") < (verdict.find("KEPT") % len(verdict))
