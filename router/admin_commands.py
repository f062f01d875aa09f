"""`isthmus router decisions | drain | resume`: the admin API on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from router.options import AsJson, Config, Key, Url

_Tier = Annotated[str | None, typer.Option("--tier", help="edge or cloud.")]
_Class = Annotated[str | None, typer.Option("--class", help="public, personal, secret or unknown.")]
_Reason = Annotated[str | None, typer.Option("--reason", help="Reason of the decision, or code of the refusal.")]
_Backend = Annotated[str, typer.Argument(metavar="BACKEND", help="Name of the backend, as `fleet` shows it.")]


def decisions(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with each new one until Ctrl-C.")] = False,
    privacy_class: _Class = None,
    tier: _Tier = None,
    reason: _Reason = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="At most so many of before.")] = 20,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest decisions of the running router, oldest first."""
    from router import admin_console  # noqa: PLC0415 - keeps `--help` fast
    from router.reach import reach  # noqa: PLC0415

    client = admin_console.AdminClient(*reach(url, key, config))
    wanted = {"class": privacy_class, "tier": tier, "reason": reason}
    admin_console.show_decisions(client, wanted, limit, follow=follow, as_json=as_json)


def drain(backend: _Backend, url: Url = None, key: Key = None, config: Config = None) -> None:
    """Send nothing new to a backend, until it is resumed. What runs there ends by itself."""
    from router import admin_console  # noqa: PLC0415 - keeps `--help` fast
    from router.reach import reach  # noqa: PLC0415

    admin_console.AdminClient(*reach(url, key, config)).drain(backend)


def resume(backend: _Backend, url: Url = None, key: Key = None, config: Config = None) -> None:
    """Send to a drained backend again."""
    from router import admin_console  # noqa: PLC0415 - keeps `--help` fast
    from router.reach import reach  # noqa: PLC0415

    admin_console.AdminClient(*reach(url, key, config)).resume(backend)


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    for command in (decisions, drain, resume):
        app.command(command.__name__)(command)
