"""Records who was turned away: the first few of a kind one by one, the others as one count a minute.

Anyone can knock without a key, so what knocking writes has a bound: a client with a wrong key that asks again and again
leaves a handful of lines a minute, and never fills the queue that records of served requests wait in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from router.audit.log import AuditLog
from shared.clock import Clock
from shared.errors import ClientError
from shared.http.errors import REQUEST_ID
from shared.openai.facts import Endpoint

WINDOW_S = 60.0
SINGLE = 10
"""Denials of one kind in a window that get a record of their own."""
_RECORDED = frozenset(Endpoint)
"""Routes that leave a record of every request that has a place among the first."""
_Kind = tuple[str, int, str]


@dataclass(slots=True)
class _Count:
    """Denials of one kind in this window. Times are Unix seconds."""

    first_unix_s: float
    times: int = 0


class Denials:
    """Kinds are route, status and code, so there are few of them, whatever callers send."""

    def __init__(self, audit: AuditLog, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._counts: dict[_Kind, _Count] = {}

    def note(self, request: web.Request, error: ClientError) -> bool:
        """Take one denial; whether the caller is to record it, which is so for routes that record every request."""
        route = _route_of(request)
        if route is None:
            return False
        kind = (route, error.status, error.code)
        count = self._counts.setdefault(kind, _Count(self._clock.unix_s()))
        count.times += 1
        if count.times > SINGLE:
            return False
        if request.path in _RECORDED:
            return True
        self._audit.record({**self._record(kind), "request_id": request[REQUEST_ID]})
        return False

    async def run(self) -> None:
        """Begin a new window again and again."""
        while True:
            await self._clock.sleep(WINDOW_S)
            self.flush()

    async def close(self) -> None:
        """Record what was counted until the end."""
        self.flush()

    def flush(self) -> None:
        """Record how many there were beyond the first, and begin a new window."""
        counts, self._counts = self._counts, {}
        for kind, count in counts.items():
            if count.times > SINGLE:
                more = {"times": count.times - SINGLE, "since": round(count.first_unix_s, 3)}
                self._audit.record({**self._record(kind), **more})

    def _record(self, kind: _Kind) -> dict[str, Any]:
        endpoint, status, code = kind
        at = round(self._clock.unix_s(), 3)
        return {"kind": "denied", "at": at, "endpoint": endpoint, "status": status, "code": code}


def _route_of(request: web.Request) -> str | None:
    if request.path in _RECORDED:
        return request.path
    resource = request.match_info.route.resource
    return None if resource is None else resource.canonical
