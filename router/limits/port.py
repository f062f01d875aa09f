"""The port to limits: a request asks for its share, and gives back at its end what it did not use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from shared.keys import KeyLimits

LEASE_MS = 10_000
"""A request that runs is said to run this often at least; the leases of a router that died end after this time."""


class Bound(StrEnum):
    """What stood in the way."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    CONCURRENT = "concurrent"


@dataclass(frozen=True, slots=True)
class Demand:
    """One request: whose, under which limits, and how many tokens it may take. `lease` is its own name."""

    holder: str
    limits: KeyLimits
    tokens: int
    lease: str


@dataclass(frozen=True, slots=True)
class Standing:
    """The answer, and how the key stands after it. Of what has no limit, the figures say nothing.

    `refused` is None where the demand was granted; `retry_ms` says when it could be. `second` names the place in the
    minute where its tokens were counted. `reset_*_ms` is the time after which all is unused again."""

    refused: Bound | None
    retry_ms: int
    second: int
    used_requests: int
    reset_requests_ms: int
    used_tokens: int
    reset_tokens_ms: int


class Limiter(Protocol):
    """Counts what keys use."""

    async def take(self, demand: Demand) -> Standing:
        """Grant `demand` whole or not at all.

        Raises:
            StateUnavailable: nobody who counts for all routers answers.
        """

    async def settle(self, demand: Demand, standing: Standing, tokens: int) -> None:
        """The request ended and took `tokens`: its lease is given back, and the difference counted.

        Raises:
            StateUnavailable: as for `take`; the lease then ends by its time.
        """
