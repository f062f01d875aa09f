"""`isthmus edge …` as a user runs it, on the real default model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.packages.library import Library
from edge.packages.package import Package
from shared.cli import main
from shared.settings import home

MODEL = "smollm2-135m-instruct"


@pytest.fixture
def isthmus(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process; exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main(["edge", *arguments])
        out, err = capfd.readouterr()
        return int(left.value.code or 0), out, err

    return run


@pytest.fixture
def installed(model_library: Library, installed_model: Package) -> Package:
    """The default model in this test's home, without a copy of its bytes."""
    (home() / "models").symlink_to(installed_model.folder.parent.parent.parent)
    return installed_model


def test_list_show_verify_plan(isthmus: Callable[..., tuple[int, str, str]], installed: Package) -> None:
    code, out, _ = isthmus("list", "--json")
    assert code == 0
    assert [row["name"] for row in json.loads(out)] == [MODEL]
    assert MODEL in isthmus("list")[1]
    assert json.loads(isthmus("show", "--json")[1])["digest"] == installed.digest
    assert installed.digest in isthmus("show", MODEL)[1]
    verified = {"name": MODEL, "digest": installed.digest, "verified": True, "signer": None}
    assert json.loads(isthmus("verify", MODEL, "--json")[1]) == verified
    assert json.loads(isthmus("verify", "--json")[1]) == [verified]
    plan = json.loads(isthmus("plan", "--context", "1024", "--slots", "2", "--json")[1])
    assert plan["lines"]["kv_bytes"] == 2 * 1024 * 23_040
    assert plan["total_bytes"] == sum(plan["lines"].values())
    assert "1024 tokens" in isthmus("plan", "--context", "1024")[1]


def test_import_a_file(isthmus: Callable[..., tuple[int, str, str]], installed_model: Package) -> None:
    code, out, _ = isthmus("import", str(installed_model.model_path), "--name", "mine", "--json")
    assert code == 0
    assert json.loads(out)["name"] == "mine"
    assert [row["name"] for row in json.loads(isthmus("list", "--json")[1])] == ["mine"]


def test_failures_are_one_line_and_a_code(isthmus: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """GG-01 kind: a file that is no model is refused by name before anything is installed."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00")
    for arguments in (
        ("show", "absent"),
        ("verify", "absent"),
        ("plan", "absent"),
        ("serve", "--port", "0"),
        ("import", str(broken)),
        ("import", str(tmp_path / "none.gguf")),
        ("ps", "--url", "http://127.0.0.1:9"),
        ("serve", "--host", "0.0.0.0"),
    ):
        code, out, err = isthmus(*arguments)
        assert code in (1, 2, 10), arguments
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1, err
    assert json.loads(isthmus("list", "--json")[1]) == []
    assert "isthmus edge pull" in isthmus("list")[1]
