"""What the `isthmus edge` commands print: tables for people, JSON for programs, and the running agent's answers."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn
from rich.table import Table

from edge.custody import trust_of
from edge.packages.library import Library
from edge.packages.progress import Progress as Step
from edge.packages.progress import ProgressListener, ignore
from edge.packages.sources.address import RemoteRules
from edge.service.openapi import STATUS_ROUTE
from edge.settings import EdgeSettings
from shared.errors import BackendStatus, BackendUnreachable, SettingsError, TrustError

_ANSWER_LIMIT_S = 5.0
MIB = 1 << 20


def library(settings: EdgeSettings) -> Library:
    """The packages of this device, with whom its owner trusts.

    Raises:
        SettingsError: the trusted keys cannot be read.
    """
    sources = settings.sources
    remote = RemoteRules(hub_url=sources.hub_url, allow_http=sources.allow_http, limit_bytes=sources.limit)
    return Library(settings.store_dir, trust_of(settings, _warn), state=settings.trust_dir, remote=remote)


def folder_of(settings: EdgeSettings, target: str) -> Path:
    """The folder of the installed package `target`, or the path `target` where it has a slash.

    Raises:
        NotFound: it is not installed.
    """
    return Path(target) if "/" in target else library(settings).show(target).folder


def _warn(problem: TrustError) -> None:
    print(f"warning: {problem.message}", file=sys.stderr)  # noqa: T201 - what the policy `warn` is for


@contextlib.contextmanager
def progress(*, quiet: bool) -> Iterator[ProgressListener]:
    """A listener that draws a bar on standard error; nothing is drawn when `quiet` or when nobody looks."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield ignore
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=console) as bar:
        rows: dict[str, TaskID] = {}

        def listen(step: Step) -> None:
            if step.step not in rows:
                rows[step.step] = bar.add_task(step.step.value, total=step.total_bytes)
            bar.update(rows[step.step], completed=step.done_bytes, total=step.total_bytes)

        yield listen


def show_status(status: dict[str, Any], *, as_json: bool) -> None:
    """The running agent."""
    if as_json:
        print_json(status)
        return
    engine, router = status["engine"], status["router"]
    models = ", ".join(f"{m['model_id']} ({m['context_tokens']} tokens)" for m in status["models"]) or "none yet"
    print_facts(
        {
            "backend": f"{status['backend_id']} ({status['zone']})",
            "ready": "yes" if status["ready"] else f"no: {status['not_ready_reason']}",
            "engine": f"{engine['state']}, pid {engine['pid']}, {engine['restarts']} restart(s)",
            "last cause": engine["cause"],
            "computes": _computing_of(status),
            "speculation": _speculation_of(status["speculation"]),
            "models": models,
            "slots": f"{status['slots_busy']} of {status['slots_total']} busy, {status['queued']} waiting",
            "heat": _heat_of(status),
            "energy": _energy_of(status),
            "memory": _memory_of(status),
            "prefill": _number(status["prefill_tokens_per_s"], "tokens/s"),
            "decode": _number(status["decode_tokens_per_s"], "tokens/s"),
            "router": f"{router['url']}: {router['reports']}" if router["url"] else "none",
        }
    )


def show_enrolment(enrolment: dict[str, Any], *, as_json: bool) -> None:
    """What joining came to."""
    if as_json:
        print_json(enrolment)
        return
    print_facts(
        {"router": enrolment["router_url"], "backend": enrolment["backend_id"], "device": enrolment["device_id"]}
    )


def status_of(base_url: str, key_file: Path | None) -> dict[str, Any]:
    """The status of the agent at `base_url`.

    Raises:
        BackendUnreachable: nobody answers there.
        BackendStatus: it answers something else.
        SettingsError: the key file cannot be read.
    """
    return asyncio.run(_ask(base_url.rstrip("/") + STATUS_ROUTE, key_header(key_file)))


def key_header(key_file: Path | None) -> dict[str, str]:
    """The header that carries the key in `key_file`.

    Raises:
        SettingsError: the file cannot be read.
    """
    if key_file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {key_file.read_text(encoding='ascii').strip()}"}
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"The key file {key_file} cannot be read.", param="key-file") from None


async def _ask(url: str, headers: dict[str, str]) -> dict[str, Any]:
    timeout = aiohttp.ClientTimeout(total=_ANSWER_LIMIT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(url, headers=headers) as response,
        ):
            status, raw = response.status, await response.read()
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        raise BackendUnreachable(f"No agent answers at {url}.") from None
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError:
        answer = None
    if status != 200 or not isinstance(answer, dict):
        raise BackendStatus(f"The agent at {url} answered with status {status}.", backend_status=status)
    return answer


def _heat_of(status: dict[str, Any]) -> str:
    shown = f"{status['level']}, {_number(status['temperature_c'], '°C')}"
    left_s = status["seconds_to_throttle"]
    untrusted = [f"{name} {state}" for name, state in status["sensors"].items() if state not in ("ok", "settling")]
    return (
        shown
        + (f", next level in about {left_s:.0f} s" if left_s is not None else "")
        + (f"; sensors that are not trusted: {', '.join(untrusted)}" if untrusted else "")
    )


def _energy_of(status: dict[str, Any]) -> str | None:
    watts, joules = status["watts"], status["joules_per_token"]
    return None if watts is None else f"{watts:.1f} W, {_number(joules, 'J per token')}"


def _computing_of(status: dict[str, Any]) -> str | None:
    how, tuning = status["computes"], status["tuning"]
    if "n_threads_batch" not in how:
        return None
    threads = f"{how['n_threads']} thread(s) decode, {how['n_threads_batch']} read {how['n_batch']} tokens at once"
    measuring = f" ({100 * tuning['share_done']:.0f} %)" if tuning["state"] in ("waiting", "measuring") else ""
    return f"{threads}; measured for this device: {tuning['state']}{measuring}"


def _speculation_of(speculation: dict[str, Any]) -> str:
    draft = speculation["draft"]
    shown = f"{speculation['mode']} ({speculation['reason']})"
    if draft is None:
        return shown
    return f"{shown}; draft {draft['model']}" + (f": vocab_mismatch ({draft['mismatch']})" if draft["mismatch"] else "")


def _memory_of(status: dict[str, Any]) -> str:
    memory = status["memory"]
    available = memory["available_bytes"]
    shown = "not known" if available is None else f"{available / MIB:.0f} MiB available"
    steps = memory["steps_down"]
    return (
        shown
        + (f", {steps} step(s) below the full plan" if steps else "")
        + ("" if memory["admits"] else ", no new work")
    )


def _number(value: float | None, unit: str) -> str:
    return "not known" if value is None else f"{value:.1f} {unit}"


def text_console() -> Console:
    """Standard output for people."""
    # Into a pipe or a file nothing is cut to a width that nobody has.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 240)


def print_facts(facts: dict[str, Any]) -> None:
    """A line for each fact that is known."""
    table = Table(box=None, show_header=False)
    for name, value in facts.items():
        if value is not None:
            table.add_row(name, str(value))
    text_console().print(table)


def print_json(value: Any) -> None:
    """`value` for programs."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    print(text)  # noqa: T201 - machine-readable output belongs on standard output as it is
