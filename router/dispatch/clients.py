"""The two ways out of the router: to an edge agent, and, with a permit for exactly this body, to a cloud.

The body travels as it came. Of the client's headers none is passed on here; the backend gets its own key. A trace goes
on as `traceparent` with the span of the attempt; `tracestate` and `baggage`, which are text of the client's own that no
scanner saw, reach edge agents alone, unless the settings let them go further.
"""

from __future__ import annotations

import io
import ssl
from collections.abc import Mapping
from typing import Protocol

import aiohttp

from router.dispatch.job import Job
from router.dispatch.targets import Access
from router.policy.model import Candidate
from shared.errors import IsthmusError
from shared.fleet import Zone
from shared.tracing.port import Span
from shared.tracing.w3c import TRACE_PARENT

_LARGE_BODY_BYTES = 512 * 1024
"""From here on a body is written in pieces, so that one upload does not hold the event loop."""


class NotPermitted(IsthmusError):
    """A body was about to leave without a permit that covers it; no connection was opened."""

    default_code = "not_permitted"


class BackendClient(Protocol):
    """Sends one job to one backend and returns once the status line and headers are there."""

    async def send(self, job: Job, candidate: Candidate, access: Access, span: Span) -> aiohttp.ClientResponse:
        """Send as `span` of the trace. Raises: NotPermitted, or what aiohttp raises."""


def new_session(*, connect_s: float, tls: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """The one HTTP session of the process. Redirects and proxies could move a body elsewhere: both are off."""
    # Idle connections are dropped before common servers drop them (uvicorn: 5 s), so that hardly any request
    # meets a connection that is closing.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0, ttl_dns_cache=10, ssl=tls or True)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        read_bufsize=64 * 1024,
    )


class EdgeClient:
    """Sends to devices and sites; refuses any other zone."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(self, job: Job, candidate: Candidate, access: Access, span: Span) -> aiohttp.ClientResponse:
        if candidate.zone is Zone.CLOUD:
            raise NotPermitted("This client does not send to the cloud.")
        trace = _trace_headers(job, span, with_riders=True)
        return await _post(self._session, job, candidate, access, {"X-Request-Id": job.request_id, **trace})


class CloudClient:
    """Sends to clouds, and only with a permit that was minted for these very bytes. `with_riders`: what rides along
    with the client's trace goes too."""

    def __init__(self, session: aiohttp.ClientSession, *, with_riders: bool = False) -> None:
        self._session = session
        self._with_riders = with_riders

    async def send(self, job: Job, candidate: Candidate, access: Access, span: Span) -> aiohttp.ClientResponse:
        if job.permit is None or not job.permit.covers(job.body_for(Zone.CLOUD)):
            raise NotPermitted("This body has no permit to leave the edge.")
        # A request id is the client's own text and was not scanned: the cloud gets the decision's id instead.
        trace = _trace_headers(job, span, with_riders=self._with_riders)
        return await _post(self._session, job, candidate, access, {"X-Request-Id": job.decision_id, **trace})


def _trace_headers(job: Job, span: Span, *, with_riders: bool) -> dict[str, str]:
    if span.traceparent is None:
        return {}
    riders = job.carried.riders if with_riders and job.carried is not None else {}
    return {TRACE_PARENT: span.traceparent, **riders}


async def _post(
    session: aiohttp.ClientSession, job: Job, candidate: Candidate, access: Access, own: Mapping[str, str]
) -> aiohttp.ClientResponse:
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream" if job.stream else "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "isthmus-router",
        **own,
        **job.forwarded,
    }
    if access.api_key is not None:
        headers["Authorization"] = f"Bearer {access.api_key}"
    raw = job.body_for(candidate.zone)
    body = raw if len(raw) < _LARGE_BODY_BYTES else io.BytesIO(raw)
    return await session.post(candidate.url.rstrip("/") + job.path, data=body, headers=headers, allow_redirects=False)
