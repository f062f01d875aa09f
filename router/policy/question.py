"""One request put to a fleet: everything about it that is the same for every backend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from router.policy.model import Candidate, Cost, Rejected, Rejection
from router.policy.need import Need
from router.policy.ordering import Bar
from shared.fleet import Zone


@dataclass(frozen=True, slots=True)
class Price:
    """What the tokens of this request cost in one tier, and what that adds to a score (milliseconds)."""

    money: float | None = None
    joules: float | None = None
    penalty_ms: float = 0.0


FREE = Price()
UNHELD_MS = math.inf
"""`Question.held_ms` where no line is kept for others."""


class Question(NamedTuple):
    """What is asked of each backend. `forbidden` has, for each zone, why nothing in it may be used, or None."""

    need: Need
    forbidden: Mapping[Zone, Rejection | None]
    bar: Bar
    assumed_tpot_ms: float
    stale_after_ms: int
    cap_tokens: int | None
    edge: Price
    cloud: Price
    now_ms: int
    wait_limit_ms: float
    held_ms: float
    """`rows.line_ms` from which on a slow agent's line is kept for what no cloud may serve; it counts where a cloud can
    serve this request."""


class Survey(NamedTuple):
    """What a fleet answers: candidates in order, rejections by name, and what explains the first place."""

    candidates: Sequence[Candidate]
    rejected: Sequence[Rejected]
    rejected_counts: Mapping[Rejection, int]
    largest_context_tokens: int | None
    preferred_is_slow: bool
    """Whether a candidate of the preferred tier misses the objective or waits for its trials."""
    first_is_trial: bool
    """Whether an unmeasured first place displaced a measured one of a tier that is as good."""


class Shortage(NamedTuple):
    """What explains that there is no candidate."""

    model_unknown: bool
    """Every backend says what it serves, and none serves the model; an empty fleet says nothing."""
    feature_missing: bool
    """Permitted backends serve the model, and none of them a feature that is needed."""
    context_open_ended: bool
    """A permitted backend serves the model and does not declare its context."""
    cooling_until_ms: int | None
    """When the first may be asked again, where all that is permitted is cooling down."""
    excess_ms: float | None
    """By how much the shortest of the lines that are too long is so, where one is."""


class View(Protocol):
    """A fleet in the shape that a question is put to it: backend by backend, or as columns. Both answer alike."""

    def survey(self, asked: Question) -> Survey:
        """Judge and order all backends."""

    def shortage(self, asked: Question) -> Shortage:
        """Why none of them is a candidate."""


def price_of(cost: Cost, need: Need, *, cloud: bool) -> Price:
    """What a request costs in the cloud, or on an edge device."""
    if cloud:
        if cost.cloud_money_per_1k_tokens is None:
            return FREE
        money = need.likely_tokens * cost.cloud_money_per_1k_tokens / 1000
        return Price(money, None, money * cost.ms_per_money)
    if cost.edge_joules_per_token is None:
        return FREE
    joules = need.likely_tokens * cost.edge_joules_per_token
    return Price(None, joules, joules * cost.ms_per_joule)
