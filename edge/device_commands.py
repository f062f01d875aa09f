"""`isthmus edge devices` and `isthmus edge schedule`: what computes here, and where a model's operators should run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edge.settings import EdgeSettings
from shared.settings import load

app = typer.Typer()

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Profile = Annotated[
    str | None,
    typer.Option(help="Describe another device: a shipped profile, or a YAML file. `devices --profiles` lists them."),
]


@app.command()
def devices(
    bench: Annotated[
        bool, typer.Option("--bench", help="Measure peak FLOP/s and bandwidth anew; some seconds, kept afterwards.")
    ] = False,
    profiles: Annotated[bool, typer.Option("--profiles", help="List the shipped profiles of other devices.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show what computes on this device: processor, GPUs and NPUs that installed runtimes see, memory, power."""
    from edge import device_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    device_console.show(bench=bench, profiles=profiles, profile=profile, as_json=as_json)


@app.command()
def schedule(
    model: Annotated[
        str | None,
        typer.Argument(help="Installed package, or a GGUF file (its header suffices); default: edge.model."),
    ] = None,
    profile: Profile = None,
    context: Annotated[int, typer.Option(min=1, max=1 << 24, help="Tokens of the prompt to predict for.")] = 1024,
    output: Annotated[int, typer.Option(min=1, max=1 << 20, help="Tokens of the answer that the plan weighs.")] = 256,
    tax_budget: Annotated[
        float, typer.Option(min=0, max=1, help="Share of time that fallback may cost before the whole graph moves.")
    ] = 0.15,
    threads: Annotated[
        int | None, typer.Option(min=1, max=256, help="Threads to predict for; default: as the engine is started.")
    ] = None,
    operators: Annotated[bool, typer.Option("--operators", help="List every operator of every layer.")] = False,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Calibrate and compare with the real engine at 1 and 2 threads; takes minutes."),
    ] = False,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="First find threads, spinning and batch by short trials of the engine, and keep them."
        ),
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Place a model's operators on a device's units and predict prefill and decode speed."""
    from edge import schedule_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.scheduling.schedule import Demand  # noqa: PLC0415

    settings = load(EdgeSettings, "edge", config)
    name = model or settings.model
    if measure:
        return schedule_console.measure(settings, name, profile, as_json=as_json)
    if calibrate:
        schedule_console.calibrate(settings, name, profile)
    demand = Demand(context_tokens=context, output_tokens=output, tax_budget_ratio=tax_budget)
    schedule_console.show(settings, name, profile, demand, threads, every=operators, as_json=as_json)
    return 0
