"""`isthmus router …`: serve, explain what would happen to a text, show the fleet, replay and correct a decision."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from router.admin_commands import register as register_admin
from router.audit_commands import audit_app
from router.key_commands import keys_app
from router.options import AsJson, Config, Key, Url
from router.policy_commands import policy_app
from router.settings import RouterSettings
from shared import logs
from shared.settings import load


class SaidClass(StrEnum):
    """Classes that a user may name."""

    PUBLIC = "public"
    PERSONAL = "personal"
    SECRET = "secret"  # noqa: S105 - a class name, not a credential


app = typer.Typer(
    name="router", help="Policy router: serve, explain, fleet, keys, policy, audit.", no_args_is_help=True
)
app.add_typer(audit_app, name="audit")
app.add_typer(policy_app, name="policy")
app.add_typer(keys_app, name="keys")
devices_app = typer.Typer(help="Devices that may report: invite, list, revoke.", no_args_is_help=True)
app.add_typer(devices_app, name="devices")
register_admin(app)


@app.command()
def serve(
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that serve the port together.")] = None,
    worker_of: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> int:
    """Serve the OpenAI API over the fleet until a signal."""
    from router import serve as serving  # noqa: PLC0415 - needs the router extra, `--help` does not

    settings = load(RouterSettings, "router", config, host=host, port=port, workers=workers)
    logs.configure(level=settings.log_level)
    if worker_of is not None:
        return serving.run_worker(settings, worker_of)
    if settings.workers > 1:
        return serving.run_family(settings, [] if config is None else ["--config", str(config)])
    return serving.run(settings)


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
    from router.reach import reach  # noqa: PLC0415

    client = console.RouterClient(*reach(url, key, config))
    console.show_explanation(client.explain(text, model, header or []), as_json=as_json)


@app.command()
def fleet(url: Url = None, key: Key = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show the backends that the running router knows."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast
    from router.reach import reach  # noqa: PLC0415

    client = console.RouterClient(*reach(url, key, config))
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
    from router.reach import reach  # noqa: PLC0415

    way = reach(url, key, config)
    console.show_invitation(console.RouterClient(*way).invite(valid_s), way.base_url, as_json=as_json)


@devices_app.command("list")
def devices_list(url: Url = None, key: Key = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show every device that joined, revoked ones too."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast
    from router.reach import reach  # noqa: PLC0415

    console.show_devices(console.RouterClient(*reach(url, key, config)).devices(), as_json=as_json)


@devices_app.command("revoke")
def devices_revoke(
    device_id: Annotated[str, typer.Argument(help="Name of the device, as `list` shows it.")],
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Take nothing from a device any more; its backend may join again with another key."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast
    from router.reach import reach  # noqa: PLC0415

    console.RouterClient(*reach(url, key, config)).revoke(device_id)
    console.show_done("revoked", device_id, "Nothing is taken from it any more.", as_json=as_json)


@app.command()
def replay(
    decision_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a decision or of a request.")],
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Decide a recorded request again, from the audit log alone, and say whether the answer is the same."""
    from router import audit_console  # noqa: PLC0415 - keeps `--help` fast
    from router.audit_commands import audit_key, log_dir  # noqa: PLC0415

    return audit_console.show_replay(log_dir(config), audit_key(config), decision_id, as_json=as_json)


@app.command()
def feedback(
    decision_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a decision or of a request.")],
    said: Annotated[SaidClass, typer.Option("--class", help="The class that would have been right.")],
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Tell the running router that a request's class was wrong. It is kept, and changes nothing by itself; see
    `isthmus router policy propose`."""
    from router import console  # noqa: PLC0415 - keeps `--help` fast
    from router.reach import reach  # noqa: PLC0415

    client = console.RouterClient(*reach(url, key, config))
    console.show_feedback(client.feedback(decision_id, said), as_json=as_json)
