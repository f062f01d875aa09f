"""`isthmus fleet …`: the state of devices and clouds as a running router sees them."""

from __future__ import annotations

from typing import Annotated

import typer

from router.options import AsJson, Config

app = typer.Typer(name="fleet", help="Devices and clouds as the router sees them: status.", no_args_is_help=True)

Url = Annotated[str | None, typer.Option("--url", help="Base URL of the router; default: from the settings.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="ISTHMUS_API_KEY",
        help="API key of scope admin:read, where one is wanted; default: as for `isthmus router`.",
    ),
]


@app.callback()
def fleet() -> None:
    """Devices and clouds as the router sees them."""


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show it anew each interval.")] = False,
    interval_s: Annotated[float, typer.Option("--interval-s", min=0.2, max=3600, help="Seconds between looks.")] = 1.0,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """One row a backend: heat, load, rates, digest parity, breaker, share of traffic, last reasons."""
    from router import fleet_console  # noqa: PLC0415 - keeps `--help` fast
    from router.console import RouterClient  # noqa: PLC0415
    from router.reach import reach  # noqa: PLC0415

    client = RouterClient(*reach(url, key, config))
    fleet_console.status(client, watch_s=interval_s if watch else None, as_json=as_json)
