"""What `isthmus router` prints: asks a running router over HTTP and lays its answers out for people."""

from __future__ import annotations

import re
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from types import MappingProxyType
from typing import Any

import orjson
from rich.console import Console

from router.reach import opened, unanswered
from shared.enrolment import DEVICES_ROUTE, INVITATIONS_ROUTE
from shared.errors import BackendUnreachable, InvalidRequest, IsthmusError
from shared.tables import Rows

_LIMIT_S = 10
_ANSWER_BYTES = 8 * 1024 * 1024


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")


class RouterClient:
    """Asks one router."""

    def __init__(self, base_url: str, key: str | None, tls: ssl.SSLContext | None = None) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise InvalidRequest("The router's URL must start with http:// or https://.", param="url")
        self._base_url = base_url.rstrip("/")
        self._tls = tls
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def explain(self, text: str, model: str, headers: list[str]) -> dict[str, Any]:
        """The router's answer for a chat request with one user message."""
        try:
            body = orjson.dumps({"model": model, "messages": [{"role": "user", "content": text}]})
        except TypeError:  # an argument that was no text in this locale
            raise InvalidRequest("The text is not valid UTF-8.", param="text") from None
        return self._ask("/router/v1/explain", body, dict(_header(each) for each in headers), holds="decision")

    def fleet(self) -> dict[str, Any]:
        """The live snapshot."""
        return self._ask("/admin/v1/fleet", None, holds="backends")

    def decision(self, decision_id: str) -> dict[str, Any]:
        """One decision, explained."""
        return self._ask(f"/admin/v1/decisions/{urllib.parse.quote(_id(decision_id), safe='')}", None, holds="record")

    def feedback(self, decision_id: str, said: str) -> dict[str, Any]:
        """Keep that the class of a request should have been `said`."""
        body = orjson.dumps({"decision_id": _id(decision_id), "class": said})
        return self._ask("/router/v1/feedback", body, holds="about")

    def devices(self) -> dict[str, Any]:
        """Every enrolled device."""
        return self._ask(DEVICES_ROUTE, None, holds="devices")

    def invite(self, valid_s: int) -> dict[str, Any]:
        """A token with which one device may join."""
        return self._ask(INVITATIONS_ROUTE, orjson.dumps({"valid_s": valid_s}), holds="token")

    def revoke(self, device_id: str) -> None:
        """Take nothing from that device any more."""
        self._ask(f"{DEVICES_ROUTE}/{urllib.parse.quote(device_id, safe='')}", None, method="DELETE")

    def _ask(
        self,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] = MappingProxyType({}),
        *,
        method: str | None = None,
        holds: str | None = None,
    ) -> dict[str, Any]:
        """The answer, an object that has the field `holds`."""
        try:
            asked = urllib.request.Request(  # noqa: S310 - the scheme was checked
                self._base_url + path,
                data=body,
                method=method,
                headers={"Content-Type": "application/json", **self._headers, **headers},
            )
            with opened(asked, timeout_s=_LIMIT_S, tls=self._tls) as answer:
                value = orjson.loads(answer.read(_ANSWER_BYTES) or b"{}")
        except urllib.error.HTTPError as error:
            with error:
                raise IsthmusError(_message_of(error)) from None
        except (OSError, HTTPException, ValueError) as error:  # the latter: no address, or an answer that is no JSON
            raise BackendUnreachable(unanswered(self._base_url, error)) from None
        if not isinstance(value, dict) or (holds is not None and holds not in value):
            raise BackendUnreachable(f"What answers at {self._base_url} is no router.")
        return value


def show_explanation(answer: dict[str, Any], *, as_json: bool) -> None:
    """Class, findings, candidates and every rejection."""
    if as_json:
        print_json(answer)
        return
    console = Console()
    found, decision = answer["classification"], answer["decision"]
    kinds = ", ".join(sorted({each["kind"] for each in found["entities"]})) or "nothing"
    rule = f"  [bold]rule[/] {decision['rule']}" if decision["rule"] else ""
    console.print(
        f"[bold]class[/] {decision['class']}  [bold]found[/] {kinds}  [bold]reason[/] {decision['reason']}{rule}"
    )
    for line in answer["words"]:
        console.print(f"  {line}", markup=False, highlight=False)
    table = table_of("backend", "zone", "verdict", "first token", "per token")
    for n, each in enumerate(decision["candidates"], start=1):
        verdict = "chosen" if n == 1 else f"candidate {n}"
        ttft, tpot = ms(each["predicted_ttft_ms"]), ms(each["predicted_tpot_ms"])
        table.add_row(each["backend"], each["zone"], verdict, ttft, tpot)
    for each in decision["rejected"]:
        table.add_row(each["backend"], each["zone"], f"no: {each['reason']}", "", "")
    if table.row_count:
        console.print(table)
    else:
        console.print("  No backend is known.")


def show_fleet(answer: dict[str, Any], *, as_json: bool) -> None:
    """One row a backend."""
    if as_json:
        print_json(answer)
        return
    table = table_of("backend", "zone", "state", "heat", "busy", "ttft", "models")
    for each in answer["backends"]:
        state = each["state"] if each["breaker"] == "closed" else f"{each['state']}, breaker {each['breaker']}"
        busy = f"{or_dash(each['slots_busy'])}/{or_dash(each['slots_total'])}"
        if each["queued"]:
            busy += f" +{each['queued']}"
        models = ", ".join(model["model_id"] for model in each["models"])
        table.add_row(each["backend_id"], each["zone"], state, _heat_of(each), busy, ms(each["ttft_ms"]), models)
    console = Console()
    console.print(table if answer["backends"] else "No backend is known.")
    for each in answer.get("tokenizer_mismatches", ()):
        groups = " | ".join(", ".join(group) for group in each["backends"])
        console.print(f"{each['model_id']}: these do not tokenize alike: {groups}", markup=False, style="yellow")


def _heat_of(backend: dict[str, Any]) -> str:
    """Level, degrees, and the seconds after which the next level comes, as far as they are known."""
    celsius, left_s = backend["temperature_c"], backend["seconds_to_throttle"]
    return (
        str(backend["level"])
        + ("" if celsius is None else f" {celsius:.0f}°C")
        + ("" if left_s is None else f", next in {left_s:.0f} s")
    )


def show_devices(answer: dict[str, Any], *, as_json: bool) -> None:
    """One row a device."""
    if as_json:
        print_json(answer)
        return
    table = table_of("device", "state", "enrolled", "backend")
    for each in answer["devices"]:
        enrolled = datetime.fromtimestamp(each["enrolled_unix_s"], UTC).strftime("%Y-%m-%d %H:%M UTC")
        table.add_row(each["device_id"], each["state"], enrolled, each["backend_id"])
    Console().print(table if answer["devices"] else "No device has joined.")


def show_invitation(answer: dict[str, Any], base_url: str, *, as_json: bool) -> None:
    """The token, and the command to run on the device."""
    if as_json:
        print_json(answer)
        return
    print(f"isthmus edge join {base_url} --token {answer['token']}")  # noqa: T201 - to be copied as it is
    print(f"Works once, within {answer['valid_s']} s.", file=sys.stderr)  # noqa: T201


def show_done(done: str, name: str, meaning: str, *, as_json: bool) -> None:
    """That something was done to what `name` names, and what follows from it."""
    if as_json:
        print_json({done: name})
    else:
        Console().print(f"{name}: {done}. {meaning}", markup=False, highlight=False, soft_wrap=True)


def show_feedback(kept: dict[str, Any], *, as_json: bool) -> None:
    """What was kept."""
    if as_json:
        print_json(kept)
    else:
        told = (
            f"Kept: {kept['about']} was found to be {kept['class_found']}, and should have been {kept['class_said']}."
        )
        Console().print(told, soft_wrap=True)


def table_of(*columns: str) -> Rows:
    """A table that stays readable in 80 columns."""
    return Rows(*columns)


def _id(given: str) -> str:
    """An id as the command line gave it. Raises InvalidRequest where it was no text in this locale."""
    if not given.isascii() or not given.isprintable():
        raise InvalidRequest("An id is printable ASCII.", param="id")
    return given


def _header(given: str) -> tuple[str, str]:
    name, separator, value = given.partition("=")
    if not separator or not name:
        raise InvalidRequest("A header is given as name=value.", param="header")
    if not _HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
        raise InvalidRequest("A header is a token, and its value one line of printable ASCII.", param="header")
    return name, value


def _message_of(error: urllib.error.HTTPError) -> str:
    try:
        why = f"The router answered {error.code}: {orjson.loads(error.read(65536))['error']['message']}"
        return f"{why} Give a key with --key or ISTHMUS_API_KEY." if error.code == 401 else why
    except (orjson.JSONDecodeError, KeyError, TypeError, OSError):
        return f"The router answered {error.code}."


def print_json(value: dict[str, Any]) -> None:
    print(orjson.dumps(value).decode())  # noqa: T201 - this is the output


def ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def or_dash(value: object) -> str:
    return "-" if value is None else str(value)
