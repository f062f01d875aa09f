"""`isthmus demo heat`: real requests while a simulated device grows hot and cools down again, and the verdict."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from loadtests.demo.heat_play import Story, heat_of, play
from loadtests.demo.heat_story import Look, Row, faults, rows, summary
from loadtests.demo.stack import Key, running
from shared.errors import IsthmusError
from shared.testing.scenarios import Scenario

_DWELL_S = 10.0
"""The agent's default for `edge.thermal.dwell_s`, in time of the device."""
_LAG_S = 0.35
"""A level is seen this much later at most: a sensor's reading, a heartbeat, a look (seconds of the clock)."""
_CLIENTS = 3
_OWN_STACK = {"ISTHMUS__EDGE__SLOTS": "2", "ISTHMUS__EDGE__ENGINE__THREADS_PREFILL": "1"}
"""A stack that is started for the demo has two slots, so that losing one can be seen, and leaves cores to the cloud."""


def heat(
    scenario: Annotated[Scenario, typer.Option(help="What happens to the device.")] = Scenario.RAMP,
    clients: Annotated[int, typer.Option(min=1, max=32, help="Clients that ask all the time.")] = _CLIENTS,
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML).")] = None,
    key: Key = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows and verdict as JSON.")] = False,
) -> int:
    """Send real requests while a simulated device grows hot and cools down, and show what it did about it.

    Uses the stack of isthmus up --heat where one runs, with the scenario that it simulates, or starts one and ends it
    afterwards. Exits with 1 when a request failed that policy allowed somewhere, when the level flapped, or when the
    device did not recover.
    """
    story = asyncio.run(_told(scenario, clients, config, key))
    table = rows(story.looks, story.asked)
    wrong = faults(
        story.looks,
        story.asked,
        has_cloud=story.has_cloud,
        dwell_s=_DWELL_S,
        lag_s=_LAG_S * story.compression,
    )
    if as_json:
        verdict = {"scenario": story.scenario, "faults": wrong, **summary(story.looks, story.asked)}
        verdict["rows"] = [asdict(row) for row in table]
        typer.echo(orjson.dumps(verdict, option=orjson.OPT_INDENT_2).decode())
    else:
        _show(story, table, wrong)
    return 1 if wrong else 0


async def _told(scenario: Scenario, clients: int, config: Path | None, key: str | None) -> Story:
    notes = Console(stderr=True)

    def tell(look: Look) -> None:
        notes.print(f"{look.at_s:5.0f} s  {look.level}", markup=False, highlight=False)

    extra = None if config else _OWN_STACK
    arguments = ("--heat", scenario.value)
    async with running(None, config, key=key, arguments=arguments, variables=extra) as found:
        if found.control is None:
            raise IsthmusError("Simulated heat needs the control socket of isthmus up.")
        played = await heat_of(found.control)
        story = Story(str(played["scenario"]), float(played["compression"]), float(played["duration_s"]))
        notes.print(
            f"{story.scenario}: {story.duration_s:g} s of the device in {story.duration_s / story.compression:.0f} s",
            markup=False,
        )
        await play(found, story, clients=clients, tell=tell)
    return story


def _show(story: Story, table: list[Row], wrong: list[str]) -> None:
    console = Console()
    title = f"Isthmus under heat: {story.scenario}, {story.compression:g} times as fast"
    shown = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("second", "level", "°C", "next", "derate", "spec.", "slots", "done", "cloud", "TTFT p50"):
        shown.add_column(name, justify="left" if name == "level" else "right", no_wrap=True)
    for row in table:
        shown.add_row(*_cells(row, story.compression))
    console.print(shown)
    total = summary(story.looks, story.asked)
    tiers = ", ".join(f"{count} {tier}" for tier, count in total["tiers"].items()) or "none"
    console.print(f"{total['requests']} requests, {total['answered']} answered ({tiers}), levels: ", end="")
    console.print(" → ".join(total["levels"]))
    for each in wrong:
        console.print(each, style="red", markup=False)
    if not wrong:
        console.print("No request failed that policy allowed, no level flapped, and the device recovered.")


def _cells(row: Row, compression: float) -> tuple[str, ...]:
    in_sight = None if row.throttle_in_s is None else row.throttle_in_s * compression
    return (
        f"{row.from_s:.0f}",
        row.level,
        _number(row.temperature_c, ".1f"),
        _number(in_sight, ".0f", " s"),
        _number(row.derate_ratio, ".2f"),
        row.speculation or "-",
        _number(row.slots, "d"),
        str(row.answered),
        "-" if row.cloud_ratio is None else f"{row.cloud_ratio:.0%}",
        _number(row.ttft_p50_ms, ".0f", " ms"),
    )


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
