"""`isthmus edge …` for the formats of packages: inspect any of them, convert a checkpoint to ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edge.settings import EdgeSettings
from shared.settings import load

app = typer.Typer()

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="File or folder: GGUF, ONNX, ExecuTorch, Core ML, MLC.")],
    as_json: AsJson = False,
) -> None:
    """Say what a package is, verify its structure, and whether its runtime is here. No native code is loaded."""
    from edge import format_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    format_console.show_inspection(path, as_json=as_json)


@app.command()
def convert(
    checkpoint: Annotated[
        str, typer.Argument(help="Folder with a safetensors checkpoint, or the name of one below checkpoints at home.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name to install it under; default: the folder's with -onnx.")
    ] = None,
    sign_with: Annotated[
        Path | None, typer.Option("--sign-with", help="Private key (PEM) that vouches for it.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Build an ONNX package (int4) from a checkpoint and install it. Needs the extra onnx-convert."""
    from edge import console, format_console, package_console  # noqa: PLC0415 - needs the edge extra
    from edge.packages.signing_key import SigningKey  # noqa: PLC0415

    library = console.library(load(EdgeSettings, "edge", config))
    folder = format_console.checkpoint_at(checkpoint)
    key = None if sign_with is None else SigningKey.read(sign_with)
    with console.progress(quiet=as_json) as listener:
        package = library.convert(folder, name or f"{folder.name}-onnx", signing_key=key, progress=listener)
    package_console.show_package(library, package, as_json=as_json)
