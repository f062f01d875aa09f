"""The frozen values of a decision: what goes in beside the fleet, and what comes out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from shared.fleet import ThermalLevel, Zone
from shared.openai.facts import RequestFacts
from shared.privacy import Action, PrivacyClass


class Mode(StrEnum):
    """Which tier policy prefers once privacy and eligibility have had their say."""

    __hash__ = str.__hash__  # an enum's own is a call, and slow

    PREFER_EDGE = "prefer_edge"
    ONLY_EDGE = "only_edge"
    PREFER_CLOUD = "prefer_cloud"
    ONLY_CLOUD = "only_cloud"
    FASTEST = "fastest"


class Route(StrEnum):
    """The caller's override (`x-isthmus-route`): it may only narrow."""

    __hash__ = str.__hash__  # an enum's own is a call, and slow

    AUTO = "auto"
    EDGE = "edge"
    CLOUD = "cloud"


class Rejection(StrEnum):
    """Why a backend is not a candidate: the first reason in the order of the checks."""

    __hash__ = str.__hash__  # an enum's own is a call, and slow

    PRIVACY = "privacy"
    RULE = "rule"
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
    WAIT_TOO_LONG = "wait_too_long"


class Reason(StrEnum):
    """Why the first candidate is first, or why there is none."""

    PREFERRED_TIER = "preferred_tier"
    PRIVACY_REQUIRES_EDGE = "privacy_requires_edge"
    POLICY_RULE = "policy_rule"
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


class DecisionFacts(NamedTuple):
    """One request as the policy sees it: its measurable side, its class, and the caller's override. `maskable` is
    False once masking was tried and something would have been left."""

    request: RequestFacts
    privacy_class: PrivacyClass
    entity_kinds: frozenset[str]
    route: Route = Route.AUTO
    maskable: bool = True
    key_name: str | None = None
    """Name of the caller's API key; None where the router asks for none."""
    week_minute: int = 0
    """Minutes since Monday 00:00 in the policy's time zone, below 10,080."""


@dataclass(frozen=True, slots=True)
class Slo:
    """What counts as fast enough (milliseconds)."""

    ttft_ms: float = 2_000.0
    tpot_ms: float = 150.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a token costs, and how many milliseconds of waiting that is worth; None: not counted.

    Money is counted for every token that the cloud reads or writes, in the operator's own currency; energy, in
    joules, for every token on an edge device.
    """

    cloud_money_per_1k_tokens: float | None = None
    edge_joules_per_token: float | None = None
    ms_per_money: float = 0.0
    ms_per_joule: float = 0.0


@dataclass(frozen=True, slots=True)
class Match:
    """Conditions of a rule: all that are given must hold, None is no condition.

    `any_entity` holds when one of the kinds was found, `only_entities` when something was found and nothing beside
    these kinds. Models and keys are names with `*` for any characters. `week_minutes` are intervals `[start, end)`
    of `DecisionFacts.week_minute`.
    """

    classes: frozenset[PrivacyClass] | None = None
    any_entity: frozenset[str] | None = None
    only_entities: frozenset[str] | None = None
    models: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    routes: frozenset[Route] | None = None
    features: frozenset[str] | None = None
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    week_minutes: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """What a rule does; None leaves it to the defaults. `mask_kinds` are the kinds that may travel masked (None: all);
    what holds another stays on the edge."""

    action: Action | None = None
    zones: frozenset[Zone] | None = None
    mode: Mode | None = None
    output_cap_tokens: int | None = None
    mask_kinds: frozenset[str] | None = None
    scan_answers: bool | None = None
    """Whether findings in the answer are replaced (None: as the settings say)."""
    resume: bool | None = None
    """Whether a stream that breaks after content goes on at another backend with the same weights (None: it does
    not)."""
    hedge_ms: int | None = None
    """Wait for a first token after which a second backend is asked too (None: never)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the first of a policy whose conditions hold is the one that acts."""

    name: str
    match: Match
    act: Act


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
    cost: Cost = Cost()
    rules: tuple[Rule, ...] = ()
    time_zone: str = "UTC"
    """Where the times of rules are read."""
    stream_wait_ms: float | None = None
    """Predicted time in an edge agent's line, the first token of the stream included, beyond which the agent is not
    asked (None: any)."""
    whole_wait_ms: float | None = None
    """The same for an answer that is not streamed."""
    shared_line_ratio: float = 1.0
    """Share of these times up to which a slow agent's line takes what a cloud could serve as well."""
    looks_for: str | None = None
    """sha256 of the patterns and words that the file looks for, which are not written down themselves."""

    def wait_limit_ms(self, *, stream: bool) -> float:
        """How long a request may be expected to stand in a line."""
        limit_ms = self.stream_wait_ms if stream else self.whole_wait_ms
        return math.inf if limit_ms is None else limit_ms

    def action(self, privacy_class: PrivacyClass) -> Action:
        """The action for a class; a class that is not listed gets the narrowest answer short of refusal."""
        for named, action in self.actions:
            if named is privacy_class:
                return action
        return Action.EDGE_ONLY


class Candidate(NamedTuple):
    """A backend that may and can serve, with what is predicted for this request (None: nothing measured yet)."""

    backend_id: str
    zone: Zone
    url: str
    predicted_ttft_ms: float | None
    predicted_tpot_ms: float | None
    level: ThermalLevel = ThermalLevel.UNKNOWN
    output_cap_tokens: int | None = None
    """The most this backend will write now, by its own word or a rule's (None: no bound)."""
    cost_money: float | None = None
    """What the cloud asks for prompt and expected output (None: no price is set, or an edge device)."""
    energy_joules: float | None = None
    """What prompt and expected output take on the device (None: not set, or the cloud)."""


class Rejected(NamedTuple):
    """A backend that is not a candidate, and the first reason why."""

    backend_id: str
    zone: Zone
    reason: Rejection


class Decision(NamedTuple):
    """The whole answer: enough to act on, to explain and to replay.

    `allowed_zones` is what privacy, rules and the caller left; every candidate stands in it. `rule` names the rule that
    acted (None: the defaults). `output_cap_tokens` is the first candidate's bound on the answer (None: no bound),
    `rule_cap_tokens` the rule's part in it. `mask_kinds` are the kinds that the rule lets travel masked (None: all).
    With no candidates, `reason` says which error the client gets and `retry_after_s` when asking again may help.
    `needed_tokens` is the estimated prompt plus the output asked for; `largest_context_tokens` the largest known
    context among allowed backends that serve the model.
    """

    privacy_class: PrivacyClass
    action: Action
    mode: Mode
    route: Route
    allowed_zones: frozenset[Zone]
    candidates: Sequence[Candidate]
    rejected: Sequence[Rejected]
    reason: Reason
    output_cap_tokens: int | None
    largest_context_tokens: int | None
    needed_tokens: int
    policy_digest: str
    retry_after_s: int = 1
    rule: str | None = None
    rule_cap_tokens: int | None = None
    mask_kinds: frozenset[str] | None = None
    scan_answers: bool | None = None
    resume: bool = False
    """Whether a stream that breaks after content goes on elsewhere."""
    hedge_ms: int | None = None
    """When a second candidate is asked too, while the first has given no content (None: never)."""
    rejected_counts: Mapping[Rejection, int] = MappingProxyType({})
    """How many backends each reason ruled out."""
