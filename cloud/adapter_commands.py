"""`isthmus cloud adapters …`: register LoRA adapters for a served model, list, verify, load, unload and remove them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from cloud.settings import AdapterSettings, CloudSettings, ModelSettings
from shared.errors import InvalidRequest, NotFound, SettingsError
from shared.secret_files import secret_in
from shared.settings import home, load

if TYPE_CHECKING:
    from cloud.adapters.store import Adapter, AdapterStore, BaseModel

app = typer.Typer(help="LoRA adapters of the served models, named base:adapter.", no_args_is_help=True)
Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: $ISTHMUS_CONFIG).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="base:adapter")]
Url = Annotated[str | None, typer.Option(help="Base URL of the tier; default: from the settings.")]
KeyFile = Annotated[Path | None, typer.Option(help="File with a key of scope admin, if the tier asks for one.")]
SignWith = Annotated[Path | None, typer.Option(help="Private key (PEM) that vouches for it.")]


@app.command()
def register(
    folder: Annotated[Path, typer.Argument(help="PEFT folder: adapter_config.json, adapter_model.safetensors.")],
    name: Annotated[str, typer.Option(help="base:adapter")],
    sign_with: SignWith = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check a PEFT adapter against its base model and install it; under an old name it serves whoever asks next.

    Exit codes: 10 broken or not signed, 25 no adapter, or not for this base or rank limit.
    """
    _show(_registered(_model(name, config), folder, None, sign_with), as_json=as_json)


@app.command()
def prepare(name: Name, sign_with: SignWith = None, config: Config = None, as_json: AsJson = False) -> None:
    """Install the adapter that the edge tier registered under this name: the same weights, the same digest."""
    from cloud.adapters import conversion  # noqa: PLC0415 - heavy

    chosen = _model(name, config)
    package = chosen.model.package or chosen.model.model_id
    found, file = conversion.edge_adapter(home() / "adapters", package, chosen.adapter)
    if chosen.base.digest not in (None, found.base_digest):
        raise NotFound("The edge tier registered it for another version of the base model.", param="base_digest")
    with tempfile.TemporaryDirectory() as scratch:
        conversion.convert(file, Path(scratch), chosen.base.geometry)
        _show(_registered(chosen, Path(scratch), found.digest, sign_with), as_json=as_json)


@app.command("list")
def list_(config: Config = None, as_json: AsJson = False) -> None:
    """List the registered adapters of every model that serves some."""
    for model in load(CloudSettings, "cloud", config).models:
        if model.adapters is not None:
            store = _store(model)
            for name in store.names():
                _show(store.current(name), as_json=as_json)


@app.command()
def verify(name: Name, config: Config = None, as_json: AsJson = False) -> None:
    """Check signature, base, every byte and rank of a registered adapter."""
    chosen = _model(name, config)
    chosen.store.verify(chosen.store.current(chosen.adapter), chosen.base, rank_limit=chosen.settings.rank_limit)
    _say(name, "intact", as_json=as_json)


@app.command("remove")
def remove_command(name: Name, config: Config = None, as_json: AsJson = False) -> None:
    """Take an adapter out of service: requests that run with it go on, later ones get 404."""
    chosen = _model(name, config)
    chosen.store.remove(chosen.adapter)
    _say(name, "removed", as_json=as_json)


@app.command("load")
def load_command(
    name: Name, url: Url = None, key_file: KeyFile = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Let every replica of the running tier load an adapter now, so that nobody waits for it later.

    Exit codes: 10 broken or not signed, 13 bytes changed, 25 no adapter, or not for this base or rank limit.
    """
    _act("load", name, url, key_file, config, as_json)


@app.command("unload")
def unload_command(
    name: Name, url: Url = None, key_file: KeyFile = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Let the replicas of the running tier go of an adapter; it stays registered; who asks for it loads it again."""
    _act("unload", name, url, key_file, config, as_json)


def _act(action: str, name: str, url: str | None, key_file: Path | None, config: Path | None, as_json: bool) -> None:
    from cloud import status  # noqa: PLC0415 - only these commands need it

    if not all(name.partition(":")):
        raise InvalidRequest("An adapter is named base:adapter.", param="name")
    settings = load(CloudSettings, "cloud", config)
    tier = url or status.base_url_of(settings.host, settings.port)
    replicas = status.act_on_adapter(tier, name, action, secret_in(key_file, "--key-file"))
    if as_json:
        typer.echo(orjson.dumps({"name": name, "state": f"{action}ed", "replicas": replicas}).decode())
    else:
        typer.echo(f"{name}: {action}ed in {replicas} replica{'' if replicas == 1 else 's'}")


class _Chosen:
    """A model of the settings, and the name of an adapter for it."""

    def __init__(self, model: ModelSettings, adapters: AdapterSettings, adapter: str) -> None:
        self.model = model
        self.settings = adapters
        self.adapter = adapter
        self.store = _store(model)
        self.base = _base(model)


def _model(name: str, config: Path | None) -> _Chosen:
    base, colon, adapter = name.partition(":")
    if not colon or not adapter:
        raise InvalidRequest("An adapter is named base:adapter.", param="name")
    found = next((each for each in load(CloudSettings, "cloud", config).models if each.model_id == base), None)
    if found is None:
        raise NotFound(f"The settings name no model {base}.", param="name")
    if found.adapters is None:
        raise SettingsError(f"The model {base} serves no adapters; set adapters for it.", param="cloud.models.adapters")
    return _Chosen(found, found.adapters, adapter)


def _store(model: ModelSettings) -> AdapterStore:
    from cloud.adapters.serving import store_of  # noqa: PLC0415 - needs cryptography, `--help` does not
    from cloud.supervisor import adapter_folders  # noqa: PLC0415

    return store_of(adapter_folders(model.adapters or AdapterSettings()), model.model_id)


def _base(model: ModelSettings) -> BaseModel:
    from cloud.adapters.serving import base_model  # noqa: PLC0415
    from cloud.supervisor import prepared  # noqa: PLC0415

    checkpoint = prepared(model, lambda step: None)
    source = str(checkpoint.folder) if checkpoint else model.source
    return base_model(model.model_id, source, checkpoint.digest if checkpoint else model.digest)


def _registered(chosen: _Chosen, folder: Path, digest: str | None, sign_with: Path | None) -> Adapter:
    from cloud.adapters.trust import Signer  # noqa: PLC0415 - needs cryptography, `--help` does not

    return chosen.store.register(
        folder,
        chosen.adapter,
        chosen.base,
        rank_limit=chosen.settings.rank_limit,
        digest=digest,
        signer=Signer(sign_with) if sign_with else None,
    )


def _say(name: str, state: str, *, as_json: bool) -> None:
    typer.echo(orjson.dumps({"name": name, "state": state}).decode() if as_json else f"{name}: {state}")


def _show(adapter: Adapter, *, as_json: bool) -> None:
    manifest = adapter.manifest
    name = f"{manifest.base}:{manifest.name}"
    if as_json:
        facts = {"name": name, "digest": manifest.digest, "version": manifest.fingerprint, "rank": manifest.facts.rank}
        typer.echo(orjson.dumps(facts).decode())
    else:
        typer.echo(f"{name}  {manifest.digest}  rank {manifest.facts.rank}  version {manifest.fingerprint}")
