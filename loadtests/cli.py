"""`isthmus loadtest`: run a scenario and judge it, record what a cloud sees, compare runs, simulate a fleet."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console

from loadtests.compare_command import compare
from loadtests.settings import FaultName, LoadtestSettings
from loadtests.simulation.command import simulate
from loadtests.simulation.validate_command import validate
from loadtests.workload.arrivals import Shape
from shared.errors import SettingsError
from shared.settings import home, load

if TYPE_CHECKING:
    from loadtests.workload.scenario import Scenario

app = typer.Typer(help="Drive a running stack with streaming users and report what they saw.", no_args_is_help=True)
MISSED, INVALID = 1, 3
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)?\Z")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, None: 1}
_SHARED = "Settings file (YAML)."


@app.callback()
def root() -> None:
    """Drive a running stack with streaming users and report what they saw."""


@app.command("run")
def run_command(
    scenario: Annotated[
        str, typer.Argument(help="A shipped scenario (see isthmus loadtest scenarios), or a file.")
    ] = "mixed",
    users: Annotated[int | None, typer.Option(help="Users of a closed loop.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second of an open loop, instead of users.")] = None,
    shape: Annotated[Shape | None, typer.Option(help="How the load goes over the run.")] = None,
    duration: Annotated[str | None, typer.Option(help="Length, such as 120s, 2m or 8h.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that send.")] = None,
    slo: Annotated[Path | None, typer.Option(help="SLO file; unset: the one that ships.")] = None,
    fault: Annotated[list[str] | None, typer.Option(help="Fault to bring about meanwhile; may be repeated.")] = None,
    host: Annotated[str | None, typer.Option(help="Base address, such as http://127.0.0.1:8080.")] = None,
    model: Annotated[str | None, typer.Option(help="Model id of every request.")] = None,
    route: Annotated[str | None, typer.Option(help="Value of x-isthmus-route: auto, edge or cloud.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Output tokens asked for; unset: drawn.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same requests; unset: drawn.")] = None,
    recorder: Annotated[str | None, typer.Option(help="Address of isthmus loadtest recorder.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for samples and reports.")] = None,
    report: Annotated[Path | None, typer.Option(help="File for a copy of the JSON report.")] = None,
    config: Annotated[Path | None, typer.Option(help=_SHARED)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Run a scenario for a bounded time and hold it against objectives.

    Leaves run.json, junit.xml, report.html and samples.jsonl in a folder. Exits with 1 when an objective was missed and
    with 3 when the run says nothing: a worker was lost, the generator was at its limit, a fault could not be played.
    """
    from loadtests.objectives import SHIPPED, read_slo  # noqa: PLC0415 - what only a run needs
    from loadtests.report.table import show  # noqa: PLC0415

    settings = load(
        LoadtestSettings, "loadtest", config, scenario=scenario, users=users, rate_per_s=rate, shape=shape,
        duration_s=None if duration is None else seconds_of(duration), workers=workers, host=host, model=model,
        route=route, max_tokens=max_tokens, seed=seed, recorder=recorder, report=report,
    )  # fmt: skip
    objectives = read_slo(slo or SHIPPED)
    if settings.report is not None and not settings.report.parent.is_dir():
        raise SettingsError(f"There is no folder {settings.report.parent} for the report.", param="--report")
    folder = _folder(out, scenario)
    faults = [_fault(name) for name in fault or ()]
    result = asyncio.run(_run(folder, settings, faults, objectives))
    if as_json:
        typer.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())
    else:
        console = Console()
        show(result, console)
        console.print(f"report: {folder / 'report.html'}", highlight=False, soft_wrap=True)
    if not result["valid"]:
        return INVALID
    return 0 if result["passed"] else MISSED


async def _run(folder: Path, settings: LoadtestSettings, faults: list[FaultName], slo: Any) -> dict[str, Any]:
    from loadtests.report.folder import write_reports  # noqa: PLC0415
    from loadtests.run import run_in  # noqa: PLC0415

    result = await run_in(folder, settings, faults=faults, slo=slo)
    write_reports(folder, result)
    if settings.report is not None:
        settings.report.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    return result


@app.command("scenarios")
def scenarios_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print mix and lengths of each as JSON.")] = False,
) -> None:
    """List the scenarios that ship."""
    from loadtests.workload.scenario import read_scenario, shipped  # noqa: PLC0415

    scenarios = {name: read_scenario(name) for name in shipped()}
    if as_json:
        typer.echo(orjson.dumps([_described(name, each) for name, each in scenarios.items()]).decode())
        return
    for name, scenario in scenarios.items():
        typer.echo(f"{name:12} {scenario.about}")


@app.command("recorder")
def recorder_command(
    to: Annotated[str, typer.Option(help="Base address of the cloud, such as http://127.0.0.1:8000.")],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; 0: any free one.")] = 8092,
) -> None:
    """Stand between router and cloud, count the canaries that pass, and play a cloud's faults.

    Give the router this address instead of the cloud's (router.clouds), and the run finds it by itself.
    """
    from loadtests.recorder import Recorder  # noqa: PLC0415
    from loadtests.serving import announce_and_serve  # noqa: PLC0415

    if not re.match(r"^https?://[^\s/@]+/?\Z", to):
        raise SettingsError("--to must be an address such as http://127.0.0.1:8000.", param="--to")
    announce_and_serve(Recorder(to).application(), port)


def seconds_of(text: str) -> int:
    """Whole seconds of a duration such as `90`, `120s`, `2m`, `1.5h` or `1d`.

    Raises:
        SettingsError: it is none, or shorter than a second.
    """
    match = _DURATION.match(text.strip())
    total = round(float(match[1]) * _UNIT_S[match[2]]) if match else 0
    if total < 1:
        raise SettingsError("A duration is a number with s, m, h or d, of a second at least.", param="--duration")
    return total


def _described(name: str, scenario: Scenario) -> dict[str, Any]:
    sizes = {str(kind): scenario.sizes_of(kind).model_dump(mode="json") for kind in scenario.mix}
    return {"name": name, **scenario.model_dump(mode="json", exclude={"sizes"}), "lengths_tokens": sizes}


def _fault(name: str) -> FaultName:
    from typing import get_args  # noqa: PLC0415

    known: tuple[FaultName, ...] = get_args(FaultName)
    for each in known:
        if each == name:
            return each
    raise SettingsError(f"There is no such fault. Known: {', '.join(known)}.", param="--fault")


def _folder(out: Path | None, scenario: str) -> Path:
    """An empty folder for this run.

    Raises:
        SettingsError: the one that was asked for holds something, or cannot be made.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = out or home() / "loadtests" / f"{stamp}-{Path(scenario).stem}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SettingsError(f"The folder {folder} is not empty: runs are never mixed.", param="--out")
    except OSError:
        raise SettingsError(f"The folder {folder} cannot be made.", param="--out") from None
    return folder


app.command("compare")(compare)
app.command("simulate")(simulate)
app.command("validate")(validate)
