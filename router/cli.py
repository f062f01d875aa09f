"""`isthmus router …`: serve, explain what would happen to a text, show the fleet, read and check the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.settings import RouterSettings
from shared import logs
from shared.settings import home, load

app = typer.Typer(name="router", help="Policy router: serve, explain, fleet, audit.", no_args_is_help=True)
audit_app = typer.Typer(help="The record of every request.", no_args_is_help=True)
app.add_typer(audit_app, name="audit")
devices_app = typer.Typer(help="Devices that may report: invite, list, revoke.", no_args_is_help=True)
app.add_typer(devices_app, name="devices")

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: $ISTHMUS_CONFIG).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Url = Annotated[str | None, typer.Option("--url", help="Base URL of the router; default: from the settings.")]
Key = Annotated[
    str | None, typer.Option("--key", envvar="ISTHMUS_API_KEY", help="API key, where the router wants one.")
]


@app.command()
def serve(
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
) -> int:
    """Serve the OpenAI API over the fleet until a signal."""
    from router.serve import run  # noqa: PLC0415 - needs the router extra, `--help` does not

    settings = load(RouterSettings, "router", config, host=host, port=port)
    logs.configure(level=settings.log_level)
    return run(settings)


@app.command()
def explain(
    text: Annotated[str, typer.Argument(help="What a user would write.")],
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="Request header as name=value.")] = None,
    model: Annotated[str, typer.Option(help="Model to ask for.")] = "smollm2-135m-instruct",
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Ask the running router where a text would go and why; nothing is sent to a backend."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast

    client = console.RouterClient(url or _base_url(config), key)
    console.show_explanation(client.explain(text, model, header or []), as_json=as_json)


@app.command()
def fleet(url: Url = None, key: Key = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show the backends that the running router knows."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast

    client = console.RouterClient(url or _base_url(config), key)
    console.show_fleet(client.fleet(), as_json=as_json)


@devices_app.command("invite")
def devices_invite(
    valid_s: Annotated[int, typer.Option("--valid-s", min=1, max=30 * 24 * 3600, help="How long it works.")] = 3600,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make a token with which one device may join, and show the command to run there."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast

    base_url = url or _base_url(config)
    console.show_invitation(console.RouterClient(base_url, key).invite(valid_s), base_url, as_json=as_json)


@devices_app.command("list")
def devices_list(url: Url = None, key: Key = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show every device that joined, revoked ones too."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast

    console.show_devices(console.RouterClient(url or _base_url(config), key).devices(), as_json=as_json)


@devices_app.command("revoke")
def devices_revoke(
    device_id: Annotated[str, typer.Argument(help="Name of the device, as `list` shows it.")],
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Take nothing from a device any more; its backend may join again with another key."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast

    console.RouterClient(url or _base_url(config), key).revoke(device_id)


@audit_app.command("tail")
def audit_tail(
    count: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many records.")] = 20,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the last records, oldest first."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast
    from router.audit.storage import tail  # noqa: PLC0415

    console.show_records(tail(_audit_dir(config), count), as_json=as_json)


@audit_app.command("verify")
def audit_verify(config: Config = None, as_json: AsJson = False) -> int:
    """Check that no record was changed, dropped, inserted or cut off."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast
    from router.audit.storage import load_key, verify  # noqa: PLC0415

    settings = load(RouterSettings, "router", config)
    key = load_key(settings.audit.key_file or home() / "audit.key", create=False)
    result = verify(_audit_dir(config), key)
    console.show_verification(result, as_json=as_json)
    return 0 if result.fault is None else 1


def _audit_dir(config: Path | None) -> Path:
    return load(RouterSettings, "router", config).audit.dir or home() / "audit"


def _base_url(config: Path | None) -> str:
    settings = load(RouterSettings, "router", config)
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
