"""`isthmus router keys …`: make, show and revoke keys; routers follow within a second, without a restart."""

from __future__ import annotations

from typing import Annotated

import typer

from router.options import AsJson, Config
from router.settings import RouterSettings
from shared.keys import KeyLimits, Scope
from shared.settings import load

keys_app = typer.Typer(help="API keys: create, list, revoke.", no_args_is_help=True)
_MOST = 10**12
_DAYS = 36_500

PerMinute = Annotated[int | None, typer.Option("--requests-per-minute", min=1, max=_MOST, help="Requests in a minute.")]
Tokens = Annotated[
    int | None, typer.Option("--tokens-per-minute", min=1, max=_MOST, help="Tokens of prompts and answers in a minute.")
]
Concurrent = Annotated[
    int | None, typer.Option("--concurrent", min=1, max=_MOST, help="Requests running at the same time.")
]


@keys_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Name for people; appears in the audit log and may stand in rules.")],
    scope: Annotated[list[Scope] | None, typer.Option("--scope", help="What it may do; may be repeated.")] = None,
    requests_per_minute: PerMinute = None,
    tokens_per_minute: Tokens = None,
    concurrent: Concurrent = None,
    valid_days: Annotated[
        int | None, typer.Option("--valid-days", min=1, max=_DAYS, help="Days until it expires; default: never.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, this once; only its hash is kept. Default scope: inference."""
    from router import key_console  # noqa: PLC0415 - keeps `--help` fast

    limits = KeyLimits(requests_per_minute, tokens_per_minute, concurrent)
    made = key_console.create(_settings(config), name, tuple(scope or [Scope.INFERENCE]), limits, valid_days)
    key_console.show_made(made, as_json=as_json)


@keys_app.command("list")
def list_keys(config: Config = None, as_json: AsJson = False) -> None:
    """Show the keys of the settings and those that were made, without anything that would let one in."""
    from router import key_console  # noqa: PLC0415 - keeps `--help` fast

    key_console.show_keys(key_console.listed(_settings(config)), as_json=as_json)


@keys_app.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(help="Name or id, as `list` shows them.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Let a key in no more."""
    from router import key_console  # noqa: PLC0415 - keeps `--help` fast
    from router.console import show_done  # noqa: PLC0415

    key_console.revoke(_settings(config), key)
    show_done("revoked", key, "Routers let it in no more, within a second.", as_json=as_json)


def _settings(config: Config) -> RouterSettings:
    return load(RouterSettings, "router", config)
