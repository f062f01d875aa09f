"""`isthmus cloud`: serve the cloud tier on this machine, prepare its checkpoints, render it for a cluster."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

import orjson
import typer

from cloud import adapter_commands, sizing_commands
from cloud.settings import CloudSettings
from shared.settings import load

app = typer.Typer(help="Cloud tier: vLLM under Ray Serve.", no_args_is_help=True)
app.add_typer(sizing_commands.app)
app.add_typer(adapter_commands.app, name="adapters")
Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: $ISTHMUS_CONFIG).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class _Steps:
    """Prints each step of one model's preparation, for people."""

    def __init__(self, model_id: str, *, quiet: bool) -> None:
        self._model_id = model_id
        self._quiet = quiet

    def __call__(self, step: str) -> None:
        if not self._quiet:
            typer.echo(f"{self._model_id}: {step}", err=True)


@app.command("serve")
def serve_command(
    config: Config = None,
    port: Annotated[int | None, typer.Option(help="Port of the OpenAI API.")] = None,
) -> int:
    """Serve the configured models from a private Ray cluster on this machine, until SIGTERM or Ctrl-C."""
    from cloud import supervisor  # noqa: PLC0415 - only this command needs it
    from shared import logs  # noqa: PLC0415

    settings = load(CloudSettings, "cloud", config, port=port)
    logs.configure(level=settings.log_level)
    return supervisor.serve(settings)


@app.command("checkpoint")
def checkpoint_command(config: Config = None, as_json: AsJson = False) -> None:
    """Prepare the checkpoints of all models that are made from edge packages."""
    from cloud.supervisor import prepared  # noqa: PLC0415 - only this command needs it

    for model in load(CloudSettings, "cloud", config).models:
        made = prepared(model, _Steps(model.model_id, quiet=as_json))
        if made is None:
            continue
        facts = {"model_id": model.model_id, "folder": str(made.folder), "digest": made.digest, "new": made.is_new}
        if as_json:
            typer.echo(orjson.dumps(facts).decode())
        else:
            typer.echo(f"{model.model_id}: {made.folder} ({'prepared' if made.is_new else 'already there'})")


@app.command("status")
def status_command(config: Config = None, as_json: AsJson = False) -> None:
    """Show what each model can take now; exit code 1 when one is not ready."""
    from cloud import status  # noqa: PLC0415 - only this command needs it

    settings = load(CloudSettings, "cloud", config)
    capacities = status.fetch(settings.host, settings.port)
    typer.echo(status.as_json(capacities) if as_json else status.as_table(capacities))
    if not status.are_ready(capacities):
        raise typer.Exit(1)


@app.command("render")
def render_command(
    config: Config = None,
    checkpoints: Annotated[
        str, typer.Option(help="Folder on every node that holds the checkpoints of `package:NAME` sources.")
    ] = "/models",
) -> None:
    """Print the Serve config (serveConfigV2) that a RayService carries."""
    from cloud.render import render  # noqa: PLC0415 - only this command needs it

    typer.echo(render(load(CloudSettings, "cloud", config), checkpoints=PurePosixPath(checkpoints)), nl=False)
