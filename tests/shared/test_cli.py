"""The `isthmus` command: every failure is one line and a documented code, and no plug-in can take the others along."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, version
from types import ModuleType
from typing import Any

import pytest
import typer

from shared import __version__, cli
from shared.errors import InvalidRequest, SettingsError, StartFailed
from shared.extras import Extra, Installed

CANARY = "canary-cli-77"


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Replace the contributed commands: `plugins(name=app_or_exception)`."""
    names: list[str] = []

    def install(**contributed: Any) -> None:
        points = {}
        for name, what in contributed.items():
            module = ModuleType(f"played_plugin_{name}")
            if isinstance(what, Exception):
                module.__getattr__ = _raising(what)  # type: ignore[method-assign]  # PEP 562, set from outside
            else:
                module.app = what  # type: ignore[attr-defined]  # a module made by hand
            sys.modules[module.__name__] = module
            names.append(module.__name__)
            points[name] = EntryPoint(name, f"{module.__name__}:app", "isthmus.commands")
        monkeypatch.setattr(cli, "_contributed", lambda: points)

    yield install
    for name in names:
        del sys.modules[name]


def _raising(error: Exception) -> Callable[[str], Any]:
    def fail(_: str) -> Any:
        raise error

    return fail


def _app(action: Callable[[], Any], help_text: str = "A played tier.") -> typer.Typer:
    app = typer.Typer(help=help_text)

    @app.callback()
    def root() -> None:
        """A played tier."""

    @app.command()
    def act() -> Any:
        return action()

    return app


def _raise(error: BaseException) -> Callable[[], Any]:
    def action() -> Any:
        raise error

    return action


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(arguments))
    return int(caught.value.code or 0)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidRequest("The name is wrong."), 2, "error: The name is wrong."),
        (StartFailed("edge: no model"), 1, "error: edge: no model"),
        (SettingsError("Port 1 is taken.\n Choose another."), 2, "error: Port 1 is taken. Choose another."),
        (KeyboardInterrupt(), 130, "error: interrupted"),
        (typer.Abort(), 130, "error: interrupted"),
        (typer.Exit(7), 7, ""),
        (typer.BadParameter("no such level"), 2, "error: Invalid value: no such level. See isthmus edge act --help."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failure_is_one_line_and_a_code(
    plugins: Callable[..., None], capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    plugins(edge=_app(_raise(error)))
    assert _run("edge", "act") == code
    captured = capsys.readouterr()
    assert captured.err.strip() == line
    assert captured.out == ""


def test_lg_01_a_fault_shows_its_place_and_not_what_it_held(
    plugins: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    plugins(edge=_app(_raise(ValueError(CANARY))))
    assert _run("edge", "act") == 70
    error = capsys.readouterr().err
    assert error.startswith("error: unexpected ValueError at ")
    assert "test_cli.py:" in error
    assert CANARY not in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("value", "code"), [(None, 0), (0, 0), (3, 3), ("text", 0)])
def test_what_a_command_returns_is_its_code_when_it_is_a_number(
    plugins: Callable[..., None], value: Any, code: int
) -> None:
    plugins(edge=_app(lambda: value))
    assert _run("edge", "act") == code


@pytest.mark.parametrize(
    "arguments", [("edj",), ("edge", "fly"), ("edge", "act", "--height"), ("--height",), ("up", "here"), ()]
)
def test_wrong_usage_is_code_2(
    plugins: Callable[..., None], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    plugins(edge=_app(lambda: 0))
    assert _run(*arguments) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    if arguments:
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1


@pytest.mark.parametrize("error", [ImportError("no module"), RuntimeError(CANARY), AttributeError("x"), SystemError()])
def test_a_broken_plug_in_is_named_and_leaves_the_others(
    plugins: Callable[..., None], capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    plugins(broken=error, edge=_app(lambda: 4))
    assert _run("--help") == 0
    page = capsys.readouterr().out
    assert "broken" in page
    assert "edge" in page
    assert CANARY not in page
    assert _run("edge", "act") == 4
    assert _run("broken", "any", "--thing") == 70
    assert CANARY not in capsys.readouterr().err


def _without(monkeypatch: pytest.MonkeyPatch, tier: str) -> None:
    absent = Extra(tier, (Installed("engine==1", "engine", None, fits=False),))
    monkeypatch.setattr(cli, "extra_of", lambda name: absent if name == tier else Extra(name, ()))


def test_a_tier_that_is_not_installed_is_shown_and_says_how_to_get_it(
    plugins: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _without(monkeypatch, "cloud")
    plugins(cloud=_app(_raise(ModuleNotFoundError("No module named 'engine'"))), router=_app(lambda: 0))
    assert _run("--help") == 0
    assert "not installed" in " ".join(capsys.readouterr().out.split())
    assert _run("cloud", "act") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: The cloud tier is not installed (engine==1). Run: pip install --no-deps ")


def test_an_import_error_of_an_installed_tier_is_a_fault(
    plugins: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _without(monkeypatch, "router")
    plugins(cloud=_app(_raise(ModuleNotFoundError("No module named 'engine'"))))
    assert _run("cloud", "act") == 70
    assert "No module named 'engine'" in capsys.readouterr().err


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--version") == 0
    assert capsys.readouterr().out == f"isthmus {__version__}\n"
    assert version("isthmus") == __version__


def test_every_tier_contributes_a_command_with_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    for tier in ("edge", "router", "cloud", "loadtest", "demo"):
        assert _run(tier, "--help") == 0
        page = capsys.readouterr().out
        assert "Usage: isthmus" in page
        assert "--install-completion" not in page


@pytest.mark.parametrize("words", ["isthmus ", "isthmus ed", "isthmus edge "])
def test_completion_offers_tiers_and_their_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    monkeypatch.setenv("_ISTHMUS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert _run() == 0
    offered = capsys.readouterr().out.split()
    assert ("serve" if words.startswith("isthmus edge ") else "edge") in offered


def test_a_reader_that_leaves_early_ends_it_quietly(
    plugins: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    plugins(edge=_app(_raise(BrokenPipeError())))
    assert _run("edge", "act") == 1
    assert capsys.readouterr().err == ""


def test_an_output_that_cannot_be_written_is_one_line(
    plugins: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    plugins(edge=_app(_raise(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))))
    assert _run("edge", "act") == 1
    assert capsys.readouterr().err.strip() == "error: no space left on device"


def test_a_closed_output_costs_nothing_but_what_would_stand_there(
    plugins: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins(edge=_app(lambda: print("lost")))
    monkeypatch.setattr(sys, "stdout", None)
    assert _run("edge", "act") == 0
    assert sys.stdout is not None
    sys.stdout.close()
