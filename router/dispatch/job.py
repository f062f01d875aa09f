"""One request as the dispatcher gets it: what travels to which tier, and how answers of that tier are rewritten."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from router.dispatch.transcript import EventFilter
from router.policy.model import Decision
from router.privacy.answers import NewFilter
from router.privacy.permit import EgressPermit
from shared.fleet import Zone
from shared.tracing.port import NO_SPAN, Span
from shared.tracing.w3c import Carried


@dataclass(slots=True, eq=False)
class Job:
    """`body` is what travels, byte for byte. `permit` is None where nothing must leave the edge; `masked` is what goes
    to a cloud instead of `body`, and what the permit was given for. `filters` makes the filters of an answer's texts,
    by the tier that answers.

    `watch` sees the events of a stream where no filter does.

    `context_of` gives the declared context of a candidate (tokens), for a second try after one was too small.
    `forwarded` are headers that go along; none of them is the client's own credential.
    `span` is the request in its trace, and `carried` the trace that the client sent.

    Nobody changes a job once it is made; that is not enforced, because each request would pay for it.
    """

    path: str
    model: str
    body: bytes = field(repr=False)
    stream: bool
    decision: Decision
    decision_id: str
    request_id: str
    prompt_bucket: int
    permit: EgressPermit | None = field(repr=False)
    context_of: Callable[[str], int | None]
    forwarded: Mapping[str, str] = field(default_factory=dict, repr=False)
    masked: bytes | None = field(default=None, repr=False)
    filters: Mapping[Literal["edge", "cloud"], NewFilter] = field(default_factory=dict, repr=False)
    watch: EventFilter | None = field(default=None, repr=False)
    span: Span = field(default=NO_SPAN, repr=False)
    carried: Carried | None = field(default=None, repr=False)

    def body_for(self, zone: Zone) -> bytes:
        """What travels to a backend of that zone."""
        return self.masked if self.masked is not None and zone is Zone.CLOUD else self.body
