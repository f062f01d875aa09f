"""`isthmus cloud`: serve the cloud tier on this machine, prepare its checkpoint, render it for a cluster."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from cloud.render import render
from cloud.settings import CloudSettings
from shared.settings import load

app = typer.Typer(help="Cloud tier: vLLM under Ray Serve.", no_args_is_help=True)
Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: $ISTHMUS_CONFIG).")]


@app.callback()
def _cloud() -> None:
    """Cloud tier: vLLM under Ray Serve."""


@app.command("render")
def render_command(
    config: Config = None,
    checkpoints: Annotated[
        str, typer.Option(help="Folder on every node that holds the checkpoints of `package:NAME` sources.")
    ] = "/models",
) -> None:
    """Print the Serve config (serveConfigV2) that a RayService carries."""
    typer.echo(render(load(CloudSettings, "cloud", config), checkpoints=PurePosixPath(checkpoints)), nl=False)
