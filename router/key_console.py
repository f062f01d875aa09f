"""What `isthmus router keys` does and prints: works on the register itself, so it needs no running router."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from router.console import or_dash, print_json, table_of
from router.keys.book import KeyBook, MadeKey, shown
from router.settings import RouterSettings
from router.stores import with_keys
from shared.clock import SystemClock
from shared.errors import InvalidRequest, NotFound
from shared.keys import KeyLimits, Scope, generate, hashed
from shared.local_keys import RESERVED_PREFIX
from shared.state.register import Register

_DAY_S = 24 * 3600
_NAME_CHARS = 64


def create(
    settings: RouterSettings, name: str, scopes: tuple[Scope, ...], limits: KeyLimits, valid_days: int | None
) -> dict[str, Any]:
    """A new key; the answer holds it.

    Raises:
        InvalidRequest: the name is none, or taken.
        StateUnavailable: the routers' Redis does not answer.
    """
    if not 1 <= len(name) <= _NAME_CHARS or not name.isprintable() or name != name.strip():
        raise InvalidRequest(f"A name is 1 to {_NAME_CHARS} printable characters.", param="name")
    if name.startswith(RESERVED_PREFIX):
        raise InvalidRequest(f"Names that begin with {RESERVED_PREFIX} are the router's own.", param="name")
    if any(name == each.name for each in settings.keys):
        raise InvalidRequest("A key of the settings has this name.", param="name")
    key, now_s = generate(), SystemClock().unix_s()
    made = MadeKey(
        name=name,
        sha256=hashed(key),
        scopes=tuple(sorted(set(scopes))),
        made_unix_s=round(now_s, 3),
        limits=limits,
        expires_unix_s=None if valid_days is None else round(now_s + valid_days * _DAY_S, 3),
    )
    book = _changed(settings, lambda book: book.with_key(made, now_s))
    return {"key": key, **next(each for each in shown(book, now_s) if each["id"] == made.key_id)}


def revoke(settings: RouterSettings, named: str) -> None:
    """Revoke by name or id.

    Raises:
        NotFound: there is no such key here. StateUnavailable: the routers' Redis does not answer.
    """
    if any(named == each.name for each in settings.keys):
        raise NotFound("This key stands in the settings: take it out of router.keys.", param="key")
    now_s = SystemClock().unix_s()
    _changed(settings, lambda book: book.without(named, now_s))


def listed(settings: RouterSettings) -> dict[str, Any]:
    """All keys as JSON values; `source` says where one is kept."""
    found: list[KeyBook] = []

    async def look(register: Register[KeyBook]) -> None:
        found.append(register.content)

    asyncio.run(with_keys(settings, SystemClock(), look))
    fixed = [MadeKey(each.name, each.sha256, tuple(sorted(each.scopes)), 0.0, each.limits()) for each in settings.keys]
    now_s = SystemClock().unix_s()
    rows = [{**row, "made_unix_s": None, "source": "settings"} for row in shown(KeyBook(tuple(fixed)), now_s)]
    return {"keys": [*rows, *({**row, "source": "register"} for row in shown(found[0], now_s))]}


def show_made(made: dict[str, Any], *, as_json: bool) -> None:
    """The key alone on standard output, so that it can be piped to where it is kept."""
    if as_json:
        print_json(made)
        return
    print(made["key"])  # noqa: T201 - this is the output
    scopes = ", ".join(made["scopes"])
    print(f"{made['name']} ({made['id']}): {scopes}. The key is not shown again.", file=sys.stderr)  # noqa: T201


def show_keys(answer: dict[str, Any], *, as_json: bool) -> None:
    """One row a key."""
    if as_json:
        print_json(answer)
        return
    table = table_of("id", "name", "state", "per minute", "running", "made", "scopes")
    for each in answer["keys"]:
        per_minute = f"{or_dash(each['requests_per_minute'])} req, {or_dash(each['tokens_per_minute'])} tok"
        made = "in settings" if each["made_unix_s"] is None else _day(each["made_unix_s"])
        state = each["state"]
        if state == "active" and each["expires_unix_s"] is not None:
            state = f"until {_day(each['expires_unix_s'])}"
        running = or_dash(each["concurrent"])
        table.add_row(each["id"], each["name"], state, per_minute, running, made, ", ".join(each["scopes"]))
    Console().print(table if answer["keys"] else "There are no keys.")


def _changed(settings: RouterSettings, change: Callable[[KeyBook], KeyBook]) -> KeyBook:
    found: list[KeyBook] = []

    async def work(register: Register[KeyBook]) -> None:
        found.append(await register.update(change))

    asyncio.run(with_keys(settings, SystemClock(), work))
    return found[0]


def _day(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d")
