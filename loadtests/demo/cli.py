"""`isthmus demo`: plays the demo on the running stack, or on one of its own, and says whether policy was followed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from loadtests.demo.heat_cli import heat
from loadtests.demo.play import Played, play
from loadtests.demo.stack import Key, running
from loadtests.demo.table import table

_PLAIN_WIDTH = 160

app = typer.Typer(help="Send real prompts through the stack and check each decision against the policy.")
app.command()(heat)


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="Address of a router; default: the stack of isthmus up, else one of its own.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML).")] = None,
    key: Key = None,
    tiers: Annotated[str | None, typer.Option(help="Tiers of a stack that the demo starts itself.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> int:
    """Send real prompts through the stack and check each decision against the policy.

    Uses the stack that isthmus up runs here, or starts one and ends it afterwards. Exits with 1 when an answer is
    not what the default policy says.
    """
    if context.invoked_subcommand is not None:
        return 0
    played: list[Played] = []
    try:
        asyncio.run(_play(url, config, key, tiers, played))
    finally:
        # Also when the stack did not come back: what was seen until then is what explains it.
        if played:
            _show(played, as_json=as_json)
    return 1 if any(each.wrong is not None for each in played) else 0


def _show(played: list[Played], *, as_json: bool) -> None:
    if as_json:
        typer.echo(orjson.dumps([each.as_json() for each in played], option=orjson.OPT_INDENT_2).decode())
        return
    console = _console()
    console.print(table(played))
    for each in played:
        if each.wrong is not None:
            console.print(f"{each.row.kind} ({each.row.situation}): {each.wrong}", style="red", markup=False)


def _console() -> Console:
    """The terminal at its own width; a file or pipe gets lines wide enough for the table."""
    console = Console()
    return console if console.is_terminal else Console(width=_PLAIN_WIDTH)


async def _play(url: str | None, config: Path | None, key: str | None, tiers: str | None, played: list[Played]) -> None:
    notes = Console(stderr=True)
    async with running(url, config, key=key, arguments=("--tiers", tiers) if tiers else ()) as found:
        notes.print(f"router: {found.base_url}", markup=False)
        await play(found, played, lambda message: notes.print(message, markup=False))
