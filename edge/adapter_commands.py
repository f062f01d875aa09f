"""`isthmus edge adapters …`: register LoRA adapters, and load, unload, pin and unpin them in the running agent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edge.settings import EdgeSettings
from shared.settings import load as load_settings

app = typer.Typer(help="LoRA adapters of the served model, named base:adapter.", no_args_is_help=True)

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Name = Annotated[str, typer.Argument(help="base:adapter, or the adapter alone for edge.model.")]
Url = Annotated[str | None, typer.Option(help="Base URL of the agent; default: from the settings.")]
KeyFile = Annotated[Path | None, typer.Option(help="File with a key of scope admin, if the agent asks for one.")]


@app.command("list")
def list_(url: Url = None, key_file: KeyFile = None, config: Config = None, as_json: AsJson = False) -> None:
    """List the registered adapters and, where an agent runs, which of them are loaded, pinned and in use."""
    from edge import adapter_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    settings = _settings(config)
    adapter_console.show_all(adapter_console.everything(settings, url, key_file), as_json=as_json)


@app.command()
def register(
    file: Annotated[Path, typer.Argument(help="LoRA adapter (GGUF).")],
    name: Annotated[str | None, typer.Option(help="base:adapter, or the adapter alone; default: the file's.")] = None,
    base_digest: Annotated[str | None, typer.Option(help="Refuse unless the base model has this digest.")] = None,
    sign_with: Annotated[Path | None, typer.Option(help="Private key (PEM) that vouches for it.")] = None,
    url: Annotated[str | None, typer.Option(help="Send it to the agent there; default: install it here.")] = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check an adapter against its base model and install it. Under an old name it serves whoever asks next.

    Exit codes: 10 corrupt file, 13 bytes changed, 19 not signed, 25 no adapter, or not for this base or rank limit.
    """
    from edge import adapter_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    settings = _settings(config)
    full = _full(file.stem if name is None else name, settings)
    if url is not None:
        shown = adapter_console.upload(url, key_file, full, file, base_digest)
    else:
        shown = adapter_console.register(settings, full, file, base_digest=base_digest, sign_with=sign_with)
    adapter_console.show_one(shown, as_json=as_json)


@app.command()
def load(name: Name, url: Url = None, key_file: KeyFile = None, config: Config = None, as_json: AsJson = False) -> None:
    """Load an adapter now, so that its first request does not wait."""
    _act("load", name, url, key_file, config, as_json=as_json)


@app.command()
def unload(
    name: Name, url: Url = None, key_file: KeyFile = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Let go of a loaded adapter. One that requests use, or that is pinned, is refused."""
    _act("unload", name, url, key_file, config, as_json=as_json)


@app.command()
def pin(name: Name, url: Url = None, key_file: KeyFile = None, config: Config = None, as_json: AsJson = False) -> None:
    """Load an adapter and keep it whatever others need, until `unpin` or the agent's end."""
    _act("pin", name, url, key_file, config, as_json=as_json)


@app.command()
def unpin(
    name: Name, url: Url = None, key_file: KeyFile = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Let a pinned adapter go when others need its room."""
    _act("unpin", name, url, key_file, config, as_json=as_json)


@app.command()
def rm(name: Name, config: Config = None, as_json: AsJson = False) -> None:
    """Remove a registered adapter, all its versions. One that a running agent has loaded is refused."""
    from edge import adapter_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    settings = _settings(config)
    adapter_console.remove(settings, _full(name, settings), as_json=as_json)


def _act(action: str, name: str, url: str | None, key_file: Path | None, config: Path | None, *, as_json: bool) -> None:
    from edge import adapter_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    settings = _settings(config)
    shown = adapter_console.act(url or adapter_console.agent_of(settings), key_file, _full(name, settings), action)
    adapter_console.show_one(shown, as_json=as_json)


def _full(name: str, settings: EdgeSettings) -> str:
    return name if ":" in name else f"{settings.model}:{name}"


def _settings(config: Path | None) -> EdgeSettings:
    return load_settings(EdgeSettings, "edge", config)
