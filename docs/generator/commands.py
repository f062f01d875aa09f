"""The page of commands: every command of `isthmus` with its arguments and options, as the program itself knows them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from generator.errors import exit_codes
from generator.tables import code, first_sentence, table
from shared import cli

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
_INTRODUCTION = """# Commands

`isthmus COMMAND --help` says the same in a terminal; `isthmus --install-completion` completes names there. With
`--json` a command prints one JSON value (or one a line) on standard output; what it says besides goes to standard
error.

"""


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, "## Exit codes\n\n", exit_codes()]
    for words, command in _commands():
        parts.append(f"\n## `{' '.join(words)}`\n\n{_help(command)}\n")
        parts += [f"\n{table(columns, rows)}" for columns, rows in _parameters(command) if rows]
    return "".join(parts)


def _commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    root: Any = typer.main.get_command(cli.app)
    for name, command in root.commands.items():
        yield from _below(("isthmus", name), command)
    entry_points = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]["entry-points"]["isthmus.commands"]
    for name, where in entry_points.items():
        module, _, attribute = where.partition(":")
        yield from _below(("isthmus", name), typer.main.get_command(getattr(import_module(module), attribute)))


def _below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if command.hidden:
        return
    if not hasattr(command, "commands"):
        yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below((*words, name), inner)


def _help(command: Any) -> str:
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(first_sentence(paragraph) for paragraph in paragraphs)


def _parameters(command: Any) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    shown = [each for each in command.params if not each.hidden and each.name not in _EVERYWHERE]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    yield ("argument", "needed", "meaning"), [(_named(each), _needed(each), each.help or "") for each in arguments]
    yield ("option", "default", "meaning"), [(_spelled(each), _default(each), each.help or "") for each in options]


_EVERYWHERE = ("help", "install_completion", "show_completion")


def _named(argument: Any) -> str:
    return code((argument.metavar or argument.name).upper()) + (" …" if argument.nargs == -1 else "")


def _needed(argument: Any) -> str:
    return "yes" if argument.required else "no"


def _spelled(option: Any) -> str:
    names = ", ".join(code(name) for name in [*option.opts, *option.secondary_opts])
    variable = f" (`${option.envvar}`)" if option.envvar else ""
    return names + (" …" if option.multiple else "") + variable


def _default(option: Any) -> str:
    value = option.default
    if option.required:
        return "required"
    if value is None or value is False or value == () or callable(value):
        return ""
    return code(str(getattr(value, "value", value)))
