"""The frozen values of a decision: what goes in beside the fleet, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared.fleet import ThermalLevel, Zone
from shared.openai.facts import RequestFacts
from shared.privacy import Action, PrivacyClass


class Mode(StrEnum):
    """Which tier policy prefers once privacy and eligibility have had their say."""

    PREFER_EDGE = "prefer_edge"
    ONLY_EDGE = "only_edge"
    PREFER_CLOUD = "prefer_cloud"
    ONLY_CLOUD = "only_cloud"
    FASTEST = "fastest"


class Route(StrEnum):
    """The caller's override (`x-isthmus-route`): it may only narrow."""

    AUTO = "auto"
    EDGE = "edge"
    CLOUD = "cloud"


class Rejection(StrEnum):
    """Why a backend is not a candidate: the first reason in the order of the checks."""

    PRIVACY = "privacy"
    ROUTE_OVERRIDE = "route_override"
    MODE = "mode"
    NOT_READY = "not_ready"
    DRAINING = "draining"
    STALE = "stale"
    MODEL_NOT_SERVED = "model_not_served"
    FEATURE_MISSING = "feature_missing"
    CONTEXT_TOO_SMALL = "context_too_small"
    BREAKER_OPEN = "breaker_open"
    COOLING_DOWN = "cooling_down"
    THERMAL_CRITICAL = "thermal_critical"
    QUEUE_FULL = "queue_full"


class Reason(StrEnum):
    """Why the first candidate is first, or why there is none."""

    PREFERRED_TIER = "preferred_tier"
    PRIVACY_REQUIRES_EDGE = "privacy_requires_edge"
    ROUTE_OVERRIDE = "route_override"
    EDGE_UNAVAILABLE = "edge_unavailable"
    CLOUD_UNAVAILABLE = "cloud_unavailable"
    EDGE_TOO_SLOW = "edge_too_slow"
    CLOUD_TOO_SLOW = "cloud_too_slow"
    FASTEST = "fastest"
    TRIAL = "trial"
    BLOCKED = "blocked"
    PRIVACY_UNAVAILABLE = "privacy_unavailable"
    NO_CAPACITY = "no_capacity"
    MODEL_NOT_FOUND = "model_not_found"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    FEATURE_NOT_SERVED = "feature_not_served"


@dataclass(frozen=True, slots=True)
class DecisionFacts:
    """One request as the policy sees it: its measurable side, its class, and the caller's override. `maskable` is
    False once masking was tried and something would have been left."""

    request: RequestFacts
    privacy_class: PrivacyClass
    entity_kinds: frozenset[str]
    route: Route = Route.AUTO
    maskable: bool = True


@dataclass(frozen=True, slots=True)
class Slo:
    """What counts as fast enough (milliseconds)."""

    ttft_ms: float = 2_000.0
    tpot_ms: float = 150.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules in force. `stale_after_ms` is the age at which a silent edge backend leaves the table."""

    mode: Mode
    actions: tuple[tuple[PrivacyClass, Action], ...]
    slo: Slo
    stale_after_ms: int
    default_output_tokens: int
    hysteresis_ratio: float
    digest: str
    """sha256 of the canonical policy, written to every audit record."""
    dwell_ms: int = 5_000
    """How long a tier stays in use before a return to the preferred one is considered."""

    def action(self, privacy_class: PrivacyClass) -> Action:
        """The action for a class; a class that is not listed gets the narrowest answer short of refusal."""
        return next((a for c, a in self.actions if c is privacy_class), Action.EDGE_ONLY)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A backend that may and can serve, with what is predicted for this request (None: nothing measured yet)."""

    backend_id: str
    zone: Zone
    url: str
    predicted_ttft_ms: float | None
    predicted_tpot_ms: float | None
    level: ThermalLevel = ThermalLevel.UNKNOWN
    output_cap_tokens: int | None = None
    """The most this backend will write now (None: no bound)."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A backend that is not a candidate, and the first reason why."""

    backend_id: str
    zone: Zone
    reason: Rejection


@dataclass(frozen=True, slots=True)
class Decision:
    """The whole answer: enough to act on, to explain and to replay.

    `allowed_zones` is what privacy and the caller left; every candidate stands in it. `output_cap_tokens` is the
    first candidate's bound on the answer (None: no bound). With no candidates, `reason` says which error the client
    gets and `retry_after_s` when asking again may help. `needed_tokens` is the estimated prompt plus the output asked
    for; `largest_context_tokens` the largest known context among allowed backends that serve the model.
    """

    privacy_class: PrivacyClass
    action: Action
    mode: Mode
    route: Route
    allowed_zones: frozenset[Zone]
    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejected, ...]
    reason: Reason
    output_cap_tokens: int | None
    largest_context_tokens: int | None
    needed_tokens: int
    policy_digest: str
    retry_after_s: int = 1
