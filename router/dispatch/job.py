"""One request as the dispatcher gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from router.policy.model import Decision
from router.privacy.permit import EgressPermit


@dataclass(frozen=True, slots=True)
class Job:
    """`body` is what travels, byte for byte. `permit` is None where this body must not leave the edge.

    `contexts` has the declared context of each candidate (tokens), for a second try after one was too small.
    `forwarded` are headers that go along; none of them is the client's own credential.
    """

    path: str
    body: bytes = field(repr=False)
    stream: bool
    decision: Decision
    decision_id: str
    request_id: str
    prompt_bucket: int
    permit: EgressPermit | None = field(repr=False)
    contexts: Mapping[str, int | None]
    forwarded: Mapping[str, str] = field(default_factory=dict, repr=False)
