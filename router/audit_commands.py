"""`isthmus router audit …`: show, find, check and export the record of every request."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from router.options import AsJson, Config
from router.settings import RouterSettings
from shared.errors import InvalidRequest, NotFound, SettingsError
from shared.privacy import PrivacyClass
from shared.settings import home, load

audit_app = typer.Typer(help="The record of every request.", no_args_is_help=True)

_AGO = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Tier(StrEnum):
    """Where an answer came from."""

    EDGE = "edge"
    CLOUD = "cloud"


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    CLIENT_ERROR = "client_error"
    CAPACITY = "capacity"
    BACKEND_ERROR = "backend_error"
    BROKEN = "broken"
    CLIENT_LEFT = "client_left"
    ERROR = "error"


class Format(StrEnum):
    """What an export looks like."""

    JSONL = "jsonl"
    CSV = "csv"


ByClass = Annotated[PrivacyClass | None, typer.Option("--class", help="Class that was applied.")]
ByTier = Annotated[Tier | None, typer.Option("--tier", help="Tier of the last attempt.")]
ByBackend = Annotated[str | None, typer.Option("--backend", help="Backend of the last attempt.")]
ByOutcome = Annotated[Outcome | None, typer.Option("--outcome", help="How the request ended.")]
ByStatus = Annotated[int | None, typer.Option("--status", min=100, max=599, help="HTTP status.")]
ByRule = Annotated[str | None, typer.Option("--rule", help="Rule of the policy that acted.")]
ByKey = Annotated[str | None, typer.Option("--key-name", help="Name of the API key.")]
ByModel = Annotated[str | None, typer.Option("--model", help="Model asked for.")]
ByEntity = Annotated[str | None, typer.Option("--entity", help="Kind that was found.")]
ByTrace = Annotated[str | None, typer.Option("--trace", help="Trace, as x-isthmus-trace-id names it.")]
ByRequest = Annotated[str | None, typer.Option("--request", help="Request, as x-request-id names it.")]
Since = Annotated[str | None, typer.Option("--since", help="From then on: 2026-01-31, 2026-01-31T08:00, or 90m ago.")]
Until = Annotated[str | None, typer.Option("--until", help="Before then; as for --since.")]


@audit_app.command("tail")
def audit_tail(
    count: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many records.")] = 20,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the last records, oldest first."""
    from router import audit_console  # noqa: PLC0415 - keeps `--help` fast
    from router.audit.files import tail  # noqa: PLC0415

    audit_console.show_records(tail(log_dir(config), count), as_json=as_json)


@audit_app.command("query")
def audit_query(
    privacy_class: ByClass = None,
    tier: ByTier = None,
    backend: ByBackend = None,
    outcome: ByOutcome = None,
    status: ByStatus = None,
    rule: ByRule = None,
    key_name: ByKey = None,
    model: ByModel = None,
    entity: ByEntity = None,
    trace: ByTrace = None,
    request: ByRequest = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most so many.")] = 100,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show requests by what they were, newest first."""
    from router import audit_console  # noqa: PLC0415 - keeps `--help` fast
    from router.audit.files import newest_records  # noqa: PLC0415
    from router.audit.query import Wanted, select  # noqa: PLC0415

    wanted = Wanted(
        privacy_class=privacy_class,
        tier=tier,
        backend=backend,
        outcome=outcome,
        status=status,
        rule=rule,
        key=key_name,
        model=model,
        entity=entity,
        trace_id=trace,
        request_id=request,
        since_s=_moment(since, "since"),
        until_s=_moment(until, "until"),
    )
    found = list(select(newest_records(log_dir(config)), wanted, limit))
    audit_console.show_records(found, as_json=as_json, empty="No request is like that.")


@audit_app.command("verify")
def audit_verify(config: Config = None, as_json: AsJson = False) -> int:
    """Check that no record was changed, dropped, inserted, reordered or cut off; name the first that is broken."""
    from router import audit_console  # noqa: PLC0415 - keeps `--help` fast
    from router.audit.verification import verify  # noqa: PLC0415

    result = verify(audit_dir(config), audit_key(config))
    audit_console.show_verification(result, as_json=as_json)
    return 0 if result.fault is None else 1


@audit_app.command("export")
def audit_export(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; it must not exist yet.")],
    form: Annotated[Format, typer.Option("--format", help="Whole records, or a table of requests.")] = Format.JSONL,
    since: Since = None,
    until: Until = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Check the log, then write its records to a file, oldest first. A broken log is not exported."""
    from router import audit_console  # noqa: PLC0415 - keeps `--help` fast
    from router.audit.query import Wanted  # noqa: PLC0415

    wanted = Wanted(since_s=_moment(since, "since"), until_s=_moment(until, "until"))
    folder, key, as_table = audit_dir(config), audit_key(config), form is Format.CSV
    return audit_console.export(folder, key, output, wanted, as_table=as_table, as_json=as_json)


def audit_dir(config: Path | None) -> Path:
    """Where the log is kept."""
    return load(RouterSettings, "router", config).audit.dir or home() / "audit"


def log_dir(config: Path | None) -> Path:
    """Where the log is kept, which must be there.

    Raises:
        NotFound: it is not. SettingsError: it cannot be read.
    """
    folder = audit_dir(config)
    try:
        next(folder.iterdir(), None)
    except FileNotFoundError:
        raise NotFound(f"There is no audit log in {folder}.", param="router.audit.dir") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise SettingsError(f"The audit folder {folder}: {reason}.", param="router.audit.dir") from None
    return folder


def audit_key(config: Path | None) -> bytes:
    """The key of the log, which must be there.

    Raises:
        SettingsError: it is not.
    """
    from router.audit.files import load_key  # noqa: PLC0415 - keeps `--help` fast

    settings = load(RouterSettings, "router", config)
    return load_key(settings.audit.key_file or home() / "audit.key", create=False)


def _moment(given: str | None, name: str) -> float | None:
    """Unix seconds of a date, a time, or a time ago."""
    if given is None:
        return None
    ago = _AGO.fullmatch(given)
    try:
        if ago is not None:
            return (datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).timestamp()
        moment = datetime.fromisoformat(given)
        return (moment if moment.tzinfo else moment.astimezone()).timestamp()
    except (ValueError, OverflowError):  # the latter: before the year 1
        raise InvalidRequest(
            f"--{name} is a date such as 2026-01-31, a time such as 2026-01-31T08:00, or a time ago such as 90m.",
            param=name,
        ) from None
