"""What `isthmus fleet status` shows: one table of the fleet, once or live."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from router.console import RouterClient, or_dash, print_json
from shared.errors import IsthmusError
from shared.tables import Rows

_WARNING = {"hot": "yellow", "critical": "red"}
_COLUMNS = (
    "backend", "zone", "state", "heat", "derate", "slots", "queue", "tok/s in", "tok/s out", "share", "models", "last"
)  # fmt: skip
_DIGEST_CHARS = 8
_MOST_ROWS = 200
"""A terminal shows no more than that; `--json` has all of them."""


def status(client: RouterClient, *, watch_s: float | None, as_json: bool) -> None:
    """Show the fleet once, or every `watch_s` seconds until interrupted.

    Raises:
        IsthmusError: the router does not answer the first time, or refuses. Later it is shown, and asked again.
    """
    first = client.fleet()
    if as_json:
        print_json(first)
        while watch_s is not None:
            time.sleep(watch_s)
            print_json(client.fleet())
        return
    console = Console()
    if watch_s is None:
        console.print(shown(first))
        return
    with Live(shown(first), console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            time.sleep(watch_s)
            try:
                live.update(shown(client.fleet()), refresh=True)
            except IsthmusError as error:
                live.update(Text(error.message, style="red"), refresh=True)


def shown(answer: dict[str, Any]) -> RenderableType:
    """The table and what is worth a line below it."""
    backends = answer["backends"]
    if not backends:
        return Text("No backend is known.")
    differing = {each["model_id"] for each in answer["digest_mismatches"]}
    table = Rows(*_COLUMNS)
    for each in backends[:_MOST_ROWS]:
        table.add_row(*_row(each, differing))
    return Group(table, *_lines(answer))


def _row(each: dict[str, Any], differing: set[str]) -> list[str | Text]:
    share = each["share_ratio"]
    return [
        each["backend_id"],
        each["zone"],
        _state(each),
        Text(_heat(each), style=_WARNING.get(each["level"], "")),
        f"{each['derate_ratio']:.2f}",
        f"{or_dash(each['slots_busy'])}/{or_dash(each['slots_total'])}",
        or_dash(each["queued"]) if each["queue_limit"] is None else f"{or_dash(each['queued'])}/{each['queue_limit']}",
        _rate(each["prefill_tokens_per_s"]),
        _rate(each["decode_tokens_per_s"]),
        "-" if share is None else f"{share:.0%}",
        "\n".join(_model(model, differing) for model in each["models"]) or "-",
        _last(each),
    ]


def _state(each: dict[str, Any]) -> Text:
    words = [each["state"]]
    if each["stale"]:
        words.append(f"silent {each['age_ms'] / 1000:.0f} s")
    if each["breaker"] != "closed":
        words.append(f"breaker {each['breaker']}")
    if each["cooling_ms"]:
        words.append(f"rests {each['cooling_ms'] / 1000:.0f} s")
    return Text(", ".join(words), style="" if words == ["ready"] else "yellow")


def _heat(each: dict[str, Any]) -> str:
    celsius = each["temperature_c"]
    return each["level"] if celsius is None else f"{each['level']} {celsius:.0f}°C"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _model(model: dict[str, Any], differing: set[str]) -> str:
    digest = model["digest"]
    known = "no digest" if digest is None else digest.removeprefix("sha256:")[:_DIGEST_CHARS]
    return f"{model['model_id']} {known}" + (" ≠" if model["model_id"] in differing else "")


def _last(each: dict[str, Any]) -> str:
    words = [f"chosen: {each['last_reason']}"] if each["last_reason"] else []
    words += [f"not: {each['last_rejection']}"] if each["last_rejection"] else []
    return "\n".join(words) or "-"


def _lines(answer: dict[str, Any]) -> list[Text]:
    lines = []
    more = len(answer["backends"]) - _MOST_ROWS
    if more > 0:
        lines.append(Text(f"{more} more; --json has all of them."))
    for each in answer["digest_mismatches"]:
        groups = " | ".join(", ".join(group) for group in each["backends"])
        lines.append(Text(f"{each['model_id']}: not the same model everywhere: {groups}", style="yellow"))
    for each in answer["tokenizer_mismatches"]:
        groups = " | ".join(", ".join(group) for group in each["backends"])
        lines.append(Text(f"{each['model_id']}: these do not tokenize alike: {groups}", style="yellow"))
    return lines
