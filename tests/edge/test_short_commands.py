"""`isthmus list`, `ps`, `pull` and `rm` are the commands of those names below `isthmus edge`."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from edge import cli, short_commands

APPS = {
    "list": short_commands.list_app,
    "ps": short_commands.ps_app,
    "pull": short_commands.pull_app,
    "rm": short_commands.rm_app,
}
WORDS = {
    "list": ["--json"],
    "ps": ["--url", "http://127.0.0.1:9"],
    "pull": ["no-such-model"],
    "rm": ["no-such-model"],
}


def _outcome(app: typer.Typer, words: list[str]) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, words)
    return done.exit_code, done.stdout, repr(done.exception)


@pytest.mark.parametrize("name", APPS)
def test_the_short_command_does_what_the_long_one_does(name: str) -> None:
    short, long = _outcome(APPS[name], WORDS[name]), _outcome(cli.app, [name, *WORDS[name]])
    assert short == long
    assert (name == "list") is (short[0] == 0)
