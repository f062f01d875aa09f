"""The two ways out of the router: to an edge agent, and, with a permit for exactly this body, to a cloud.

The body travels as it came. Of the client's headers none is passed on here; the backend gets its own key. A trace that
this router takes part in goes on as `traceparent` with the span of the attempt. What is the client's own alone, and was
seen by no scanner, reaches edge agents and, unless the settings let it, no cloud: `tracestate`, `baggage`, and the
`traceparent` of a trace in which this router has no span.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from router.dispatch.job import Job
from router.dispatch.targets import Access
from router.dispatch.wire.answer import Answer
from router.dispatch.wire.pool import Pool
from router.policy.model import Candidate
from shared.errors import IsthmusError
from shared.fleet import Zone
from shared.tracing.port import Span
from shared.tracing.w3c import TRACE_PARENT


class NotPermitted(IsthmusError):
    """A body was about to leave without a permit that covers it; no connection was opened."""

    default_code = "not_permitted"


class BackendClient(Protocol):
    """Sends one job to one backend."""

    async def send(self, job: Job, candidate: Candidate, access: Access, span: Span) -> Answer:
        """Send as `span` of the trace. The answer, whose head is still to come. Raises: NotPermitted, WireError."""


class EdgeClient:
    """Sends to devices and sites; refuses any other zone."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def send(self, job: Job, candidate: Candidate, access: Access, span: Span) -> Answer:
        if candidate.zone is Zone.CLOUD:
            raise NotPermitted("This client does not send to the cloud.")
        trace = _trace_headers(job, span, as_it_came=True)
        return await _post(self._pool, job, candidate, access, {"X-Request-Id": job.request_id, **trace})


class CloudClient:
    """Sends to clouds, and only with a permit that was minted for these very bytes. `with_riders`: what is the client's
    own of its trace goes too."""

    def __init__(self, pool: Pool, *, with_riders: bool = False) -> None:
        self._pool = pool
        self._with_riders = with_riders

    async def send(self, job: Job, candidate: Candidate, access: Access, span: Span) -> Answer:
        if job.permit is None or not job.permit.covers(job.body_for(Zone.CLOUD)):
            raise NotPermitted("This body has no permit to leave the edge.")
        # A request id is the client's own text and was not scanned: the cloud gets the decision's id instead.
        trace = _trace_headers(job, span, as_it_came=self._with_riders)
        return await _post(self._pool, job, candidate, access, {"X-Request-Id": job.decision_id, **trace})


def _trace_headers(job: Job, span: Span, *, as_it_came: bool) -> dict[str, str]:
    """The trace for a backend; without `as_it_came`, nothing that a client wrote but the id of a trace of ours."""
    parent, carried = span.traceparent, job.carried
    if parent is None:
        return {}
    if as_it_came:
        return {TRACE_PARENT: parent, **(carried.riders if carried is not None else {})}
    # A parent that is the client's own span tells nobody there anything about this router.
    return {} if carried is not None and parent == carried.traceparent else {TRACE_PARENT: parent}


def _post(
    pool: Pool, job: Job, candidate: Candidate, access: Access, own: Mapping[str, str]
) -> Coroutine[Any, Any, Answer]:
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
    return pool.post(candidate.url.rstrip("/") + job.path, headers, job.body_for(candidate.zone))
