"""Reads the headers by which a caller steers a request, and writes those by which the router answers for it."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from aiohttp import web

from router.audit.account import Account
from router.policy.model import Route
from shared.errors import InvalidRequest
from shared.http.intake import single_header
from shared.privacy import PrivacyClass

_SESSION = re.compile(r"[\x21-\x7e]{1,128}\Z")
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")
_KNOWN = frozenset({"x-isthmus-route", "x-isthmus-privacy"})
_CLASSES = (PrivacyClass.PUBLIC, PrivacyClass.PERSONAL, PrivacyClass.SECRET)
_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the caller asks for beside the body."""

    route: Route = Route.AUTO
    privacy: PrivacyClass | None = None
    session: str | None = None
    trace_parent: str | None = None


def read_asked(request: web.Request) -> Asked:
    """The steering headers.

    Raises:
        InvalidRequest: a header is repeated, has an unknown value, or is an unknown one of ours; `param` names it.
    """
    for name in request.headers:
        lower = name.lower()
        if lower.startswith("x-isthmus-") and lower not in _KNOWN:
            raise InvalidRequest("There is no such x-isthmus header.", param="x-isthmus")
    session = single_header(request, "x-session-id")
    if session is not None and not _SESSION.match(session):
        raise InvalidRequest("The header x-session-id must be 1 to 128 visible ASCII characters.", param="x-session-id")
    trace_parent = request.headers.get("traceparent")
    return Asked(
        route=_choice(request, "x-isthmus-route", tuple(Route)) or Route.AUTO,
        privacy=_choice(request, "x-isthmus-privacy", _CLASSES),
        session=session,
        trace_parent=trace_parent if trace_parent and _TRACE_PARENT.match(trace_parent) else None,
    )


def forwarded(asked: Asked, key: bytes) -> dict[str, str]:
    """Headers that go along to a backend. The session travels as a keyed digest: enough to keep a conversation on
    one replica, and nothing of what the caller wrote into it."""
    headers = {}
    if asked.session is not None:
        headers["X-Session-Id"] = hmac.new(key, asked.session.encode(), hashlib.sha256).hexdigest()[:32]
    if asked.trace_parent is not None:
        headers["Traceparent"] = asked.trace_parent
    return headers


def answer_headers(account: Account) -> dict[str, str]:
    """What is known of the decision, for an answer of any kind."""
    headers = {"x-request-id": account.request_id, "x-isthmus-decision-id": account.decision_id}
    headers |= account.limit_headers
    if account.privacy_class is not None:
        headers["x-isthmus-class"] = account.privacy_class
    if account.decision is not None:
        headers["x-isthmus-reason"] = account.decision.reason
    if account.attempts:
        headers["x-isthmus-tier"] = account.attempts[-1].tier
        headers["x-isthmus-backend"] = account.attempts[-1].backend_id
    return headers


def _choice(request: web.Request, name: str, allowed: tuple[_E, ...]) -> _E | None:
    value = single_header(request, name)
    if value is None:
        return None
    for each in allowed:
        if value.strip() == each.value:
            return each
    raise InvalidRequest(f"The header {name} must be one of {', '.join(allowed)}.", param=name)
