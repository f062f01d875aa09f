"""How to reach a backend: credentials and quota beside the address that a decision names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from router.policy.model import Candidate
from shared.fleet import Zone


@dataclass(frozen=True, slots=True)
class Access:
    """The key that a backend wants (never the client's own), and the quota it shares."""

    api_key: str | None = field(default=None, repr=False)
    rate_domain: str | None = None
    in_flight_limit: int | None = None
    """Most requests of this router that may be open there at the same time (None: no bound)."""


class Targets:
    """Access of each configured backend; agents that report themselves share one key."""

    def __init__(self, configured: Mapping[str, Access], *, edge: Access) -> None:
        self._configured = dict(configured)
        self._edge = edge
        self._nothing = Access()

    def access(self, candidate: Candidate) -> Access:
        known = self._configured.get(candidate.backend_id)
        if known is not None:
            return known
        return self._nothing if candidate.zone is Zone.CLOUD else self._edge

    def key_of(self, backend_id: str) -> str | None:
        """The key that a configured backend wants."""
        known = self._configured.get(backend_id)
        return known.api_key if known else None

    def rate_domain(self, backend_id: str) -> str:
        """The quota's name; a backend without one is a domain of its own."""
        known = self._configured.get(backend_id)
        return (known.rate_domain if known else None) or f"backend:{backend_id}"

    def sharing(self, backend_id: str) -> set[str]:
        """The backends that share its quota, itself included."""
        domain = self.rate_domain(backend_id)
        return {backend_id, *(each for each in self._configured if self.rate_domain(each) == domain)}
