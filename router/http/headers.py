"""Reads the headers by which a caller steers a request, and writes those by which the router answers for it."""

from __future__ import annotations

import hashlib
import hmac
import re
from enum import StrEnum
from typing import NamedTuple, TypeVar

from aiohttp import web

from router.audit.account import Account
from router.policy.model import Route
from shared.errors import InvalidRequest
from shared.http.intake import single_header
from shared.http.tracing import carried_by
from shared.privacy import PrivacyClass
from shared.tracing.port import NO_SPAN, Span
from shared.tracing.w3c import Carried

_SESSION = re.compile(r"[\x21-\x7e]{1,128}\Z")
_STEERING = ("x-isthmus-", "x-session-id")
_KNOWN = frozenset({"x-isthmus-route", "x-isthmus-privacy"})
_CLASSES = (PrivacyClass.PUBLIC, PrivacyClass.PERSONAL, PrivacyClass.SECRET)
_E = TypeVar("_E", bound=StrEnum)


class Asked(NamedTuple):
    """What the caller asks for beside the body."""

    route: Route = Route.AUTO
    privacy: PrivacyClass | None = None
    session: str | None = None
    carried: Carried | None = None


_NOTHING = Asked()


def read_asked(request: web.Request, span: Span = NO_SPAN) -> Asked:
    """The steering headers, and the trace that came with the request, whose span is `span`.

    Raises:
        InvalidRequest: a header is repeated, has an unknown value, or is an unknown one of ours; `param` names it.
    """
    names = [lower for name in request.headers if (lower := name.lower()).startswith(_STEERING)]
    if not names:
        return _NOTHING if span is NO_SPAN else Asked(carried=carried_by(request, span))
    if any(name.startswith("x-isthmus-") and name not in _KNOWN for name in names):
        raise InvalidRequest("There is no such x-isthmus header.", param="x-isthmus")
    session = single_header(request, "x-session-id")
    if session is not None and not _SESSION.match(session):
        raise InvalidRequest("The header x-session-id must be 1 to 128 visible ASCII characters.", param="x-session-id")
    return Asked(
        route=_choice(request, "x-isthmus-route", tuple(Route)) or Route.AUTO,
        privacy=_choice(request, "x-isthmus-privacy", _CLASSES),
        session=session,
        carried=carried_by(request, span),
    )


def forwarded(asked: Asked, key: bytes) -> dict[str, str]:
    """Headers that go along to a backend. The session travels as a keyed digest: enough to keep a conversation on
    one replica, and nothing of what the caller wrote into it."""
    if asked.session is None:
        return {}
    return {"X-Session-Id": hmac.new(key, asked.session.encode(), hashlib.sha256).hexdigest()[:32]}


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
