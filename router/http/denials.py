"""Records who was turned away at a route that has no record of its own."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from router.audit.log import AuditLog
from shared.clock import Clock
from shared.errors import ClientError
from shared.http.errors import REQUEST_ID
from shared.openai.facts import Endpoint

_RECORDED = frozenset(Endpoint)
"""Routes that leave a record of every request."""


def denials(audit: AuditLog, clock: Clock) -> Callable[[web.Request, ClientError], None]:
    """What a doorkeeper tells of each denial: the route, and not a word of what was sent there."""

    def note(request: web.Request, error: ClientError) -> None:
        resource = request.match_info.route.resource
        if request.path in _RECORDED or resource is None:
            return
        audit.record(
            {
                "kind": "denied",
                "at": round(clock.unix_s(), 3),
                "request_id": request[REQUEST_ID],
                "endpoint": resource.canonical,
                "status": error.status,
                "code": error.code,
            }
        )

    return note
