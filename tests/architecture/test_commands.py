"""Every command of the program can speak JSON, unless it serves, or what it prints is a file format of its own."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from shared import cli

ROOT = Path(__file__).parents[2]
OTHERWISE = {
    "isthmus edge serve": "serves until it is stopped",
    "isthmus router serve": "serves until it is stopped",
    "isthmus cloud serve": "serves until it is stopped",
    "isthmus loadtest recorder": "serves until it is stopped",
    "isthmus cloud render": "prints the configuration of a RayService",
    "isthmus router audit export": "prints the format that --format names",
}


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if command.hidden:
        return
    inner = getattr(command, "commands", {})
    if not inner:
        yield name, command
    for word, each in inner.items():
        yield from _below(f"{name} {word}", each)


def _commands() -> Iterator[tuple[str, Any]]:
    for word, command in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        yield from _below(f"isthmus {word}", command)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word, where in project["entry-points"]["isthmus.commands"].items():
        module, _, attribute = where.partition(":")
        yield from _below(f"isthmus {word}", typer.main.get_command(getattr(import_module(module), attribute)))


def test_every_command_speaks_json_or_says_why_not() -> None:
    commands = dict(_commands())
    assert len(commands) > 40
    assert set(OTHERWISE) <= set(commands), "an exception that is no command any more"
    silent = {name for name, command in commands.items() if not any("--json" in each.opts for each in command.params)}
    assert silent - set(OTHERWISE) == set()


def test_every_command_and_option_says_what_it_is_for() -> None:
    for name, command in _commands():
        assert command.help, name
        unsaid = [each.name for each in command.params if not getattr(each, "help", None) and not each.hidden]
        assert not unsaid, (name, unsaid)
