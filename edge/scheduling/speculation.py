"""Decides which kind of speculation runs, if any: the one that is measurably fastest for what is being asked now.

Plain decoding is one mode among others, with the margin on its side. A mode is judged by the time per token that it
takes over the current mix of request kinds, against plain decoding over the same kinds. Modes are tried one after
another, each for at least a dwell time; one that lost is tried again after a wait that doubles each time it loses, and
plain decoding is measured anew in the same way while something else runs.

Of its own accord the policy switches at most once per dwell. Heat, a draft that does not fit, and answers that cannot
be had otherwise end speculation at once, and what follows waits for a dwell again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shared.fleet import ThermalLevel


class SpeculationMode(StrEnum):
    """How tokens are proposed. Names of the kinds are the engine's."""

    OFF = "off"
    NGRAM_SIMPLE = "ngram_simple"
    NGRAM_MAP_K = "ngram_map_k"
    NGRAM_MAP_K4V = "ngram_map_k4v"
    NGRAM_CACHE = "ngram_cache"
    NGRAM_MOD = "ngram_mod"
    DRAFT = "draft"


class RequestKind(StrEnum):
    """What an answer is like, as far as speculation cares: how much of it stands in the prompt, how regular it is."""

    COPY = "copy"
    CODE = "code"
    STRUCTURED = "structured"
    PROSE = "prose"


class Reason(StrEnum):
    """Why a mode runs. These are the metric's reasons too."""

    GAIN = "gain"
    NO_GAIN = "no_gain"
    NOT_MEASURED = "not_measured"
    PROBE = "probe"
    DWELL = "dwell"
    THERMAL = "thermal"
    LOGPROBS = "logprobs"
    VOCAB_MISMATCH = "vocab_mismatch"
    NO_CANDIDATES = "no_candidates"


@dataclass(frozen=True, slots=True)
class SpeculationPolicy:
    """What may be tried, and how eagerly.

    Of the kinds that look into the context alone, `ngram_simple` was the fastest wherever any of them paid; the others
    keep tables between requests, and their gain depends on what was asked before. `ngram_mod` is no candidate by
    default: it replays what earlier requests produced, so one client could learn from its own speed what another was
    answered.
    """

    candidates: tuple[SpeculationMode, ...] = (SpeculationMode.NGRAM_SIMPLE,)
    margin_ratio: float = 0.05
    dwell_ms: int = 30_000
    retry_ms: int = 900_000
    retry_factor: float = 2.0
    retry_limit_ms: int = 28_800_000
    least_tokens: int = 256
    """Tokens of a kind in a mode below which its rate is not believed."""
    least_coverage_ratio: float = 0.5
    """Share of the mix that must have been measured both ways."""
    most_unjudged: int = 32
    """Answers in a row that had company, and say nothing about a mode: after so many it is no longer known to pay."""
    least_acceptance_ratio: float = 0.05
    """Below it a gain is noise: what was not accepted cannot have made anything faster."""

    def __post_init__(self) -> None:
        if SpeculationMode.OFF in self.candidates or len(set(self.candidates)) != len(self.candidates):
            raise ValueError("candidates are distinct kinds of speculation")
        if self.dwell_ms < 0 or self.retry_ms < self.dwell_ms or self.retry_factor < 1 or self.margin_ratio < 0:
            raise ValueError("times and ratios must not be negative, and a retry not sooner than a dwell")


@dataclass(frozen=True, slots=True)
class Rate:
    """Measured decoding speed of one mode on one kind of request, and of how many tokens."""

    tokens_per_s: float
    tokens: int


@dataclass(frozen=True, slots=True)
class SpeculationFacts:
    """What is known at one instant.

    `mix` gives the share of each kind among recent requests. `acceptance_ratios` are accepted over proposed tokens of
    each mode when it last ran; a mode that proposed nothing is not in it. `unfit` are modes that must not run, such as
    a draft with another vocabulary. `unjudged` counts the answers since the last one that was measured.
    `log_probabilities` are asked for now: the engine tells none of tokens that were proposed.
    """

    level: ThermalLevel
    mix: Mapping[RequestKind, float]
    rates: Mapping[tuple[SpeculationMode, RequestKind], Rate]
    acceptance_ratios: Mapping[SpeculationMode, float] = field(default_factory=dict)
    unfit: frozenset[SpeculationMode] = frozenset()
    unjudged: int = 0
    log_probabilities: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """When a mode is tried next, and how long was waited for it."""

    next_ms: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class SpeculationState:
    """What runs, since when, and when each mode is tried again. A mode without a trial was never tried."""

    mode: SpeculationMode = SpeculationMode.OFF
    changed_ms: int | None = None
    trials: Mapping[SpeculationMode, Trial] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpeculationDecision:
    """The mode that should run and why. `state` holds once it runs; where it cannot be started, `failed` does."""

    mode: SpeculationMode
    reason: Reason
    state: SpeculationState
    gain_ratio: float | None = None


def decide_speculation(
    state: SpeculationState, facts: SpeculationFacts, policy: SpeculationPolicy, now_ms: int
) -> SpeculationDecision:
    """The mode for now. Safety and heat come first and do not wait; the rest does."""
    if state.mode in facts.unfit:
        return _to(SpeculationMode.OFF, Reason.VOCAB_MISMATCH, state, now_ms)
    if facts.level is not ThermalLevel.NOMINAL:
        return _to(SpeculationMode.OFF, Reason.THERMAL, state, now_ms)
    if facts.log_probabilities:
        return _to(SpeculationMode.OFF, Reason.LOGPROBS, _unless_off(state, policy, now_ms), now_ms)
    if state.changed_ms is not None and now_ms - state.changed_ms < policy.dwell_ms:
        return _to(state.mode, Reason.DWELL, state, now_ms)
    open_modes = tuple(mode for mode in policy.candidates if mode not in facts.unfit)
    if not open_modes and state.mode is SpeculationMode.OFF:
        reason = Reason.VOCAB_MISMATCH if facts.unfit else Reason.NO_CANDIDATES
        return _to(SpeculationMode.OFF, reason, state, now_ms)
    if facts.unjudged >= policy.most_unjudged:
        return _to(SpeculationMode.OFF, Reason.NOT_MEASURED, _unless_off(state, policy, now_ms), now_ms)
    if not _measured(state.mode, facts, policy):
        return _to(state.mode, Reason.NOT_MEASURED, state, now_ms)
    if not _measured(SpeculationMode.OFF, facts, policy):
        return _to(SpeculationMode.OFF, Reason.PROBE, _left(state, policy, now_ms), now_ms)
    return _chosen(state, facts, policy, open_modes, now_ms)


def gain_ratio(mode: SpeculationMode, facts: SpeculationFacts, policy: SpeculationPolicy) -> float | None:
    """How much faster `mode` is than plain decoding over the current mix; None where too little of it was measured.

    Times per token are averaged over kinds by their share; kinds that were not measured both ways are left out.
    """
    plain_s = mode_s = covered = 0.0
    total = sum(facts.mix.values())
    for kind, share in facts.mix.items():
        plain, own = _rate(SpeculationMode.OFF, kind, facts, policy), _rate(mode, kind, facts, policy)
        if plain is not None and own is not None:
            plain_s, mode_s, covered = plain_s + share / plain, mode_s + share / own, covered + share
    if covered <= 0 or covered < policy.least_coverage_ratio * total:
        return None
    return plain_s / mode_s - 1


def failed(state: SpeculationState, mode: SpeculationMode, policy: SpeculationPolicy, now_ms: int) -> SpeculationState:
    """The state after `mode` could not be started: what ran runs on, and the mode is tried again later; plain decoding
    has nothing to lose by that."""
    is_plain = mode is SpeculationMode.OFF
    trials = state.trials if is_plain else _lost(state.trials, mode, policy, now_ms)
    return replace(state, changed_ms=now_ms, trials=trials)


def _chosen(
    state: SpeculationState,
    facts: SpeculationFacts,
    policy: SpeculationPolicy,
    open_modes: tuple[SpeculationMode, ...],
    now_ms: int,
) -> SpeculationDecision:
    """The running mode has been measured: go on with it, try what is due, or return to the best that is known."""
    gains = {mode: _credible_gain(mode, facts, policy) for mode in open_modes}
    paying = {mode: gain for mode, gain in gains.items() if gain is not None and gain >= policy.margin_ratio}
    best = max(paying, key=lambda mode: paying[mode], default=SpeculationMode.OFF)
    if state.mode in paying and paying[best] - paying[state.mode] < policy.margin_ratio:
        best = state.mode  # not worth a swap
    settled = _settled(state, best, policy, now_ms)
    due = _due(settled, best, open_modes, now_ms)
    if due is not None:
        return _to(due, Reason.PROBE, settled if best is not state.mode else _left(settled, policy, now_ms), now_ms)
    gain = paying.get(best)
    if best is not SpeculationMode.OFF:
        return _to(best, Reason.GAIN, settled, now_ms, gain)
    return _to(best, Reason.NO_GAIN, settled, now_ms)


def _measured(mode: SpeculationMode, facts: SpeculationFacts, policy: SpeculationPolicy) -> bool:
    """Whether enough of the current mix was measured in `mode` to judge it."""
    covered = sum(share for kind, share in facts.mix.items() if _rate(mode, kind, facts, policy) is not None)
    return covered > 0 and covered >= policy.least_coverage_ratio * sum(facts.mix.values())


def _credible_gain(mode: SpeculationMode, facts: SpeculationFacts, policy: SpeculationPolicy) -> float | None:
    if facts.acceptance_ratios.get(mode, 0.0) < policy.least_acceptance_ratio:
        return None
    return gain_ratio(mode, facts, policy)


def _settled(
    state: SpeculationState, best: SpeculationMode, policy: SpeculationPolicy, now_ms: int
) -> SpeculationState:
    """What running `state.mode` has shown: it lost and waits longer, or it is the best and waits no more."""
    if state.mode is not best:
        return replace(state, trials=_lost(state.trials, state.mode, policy, now_ms))
    others = {mode: trial for mode, trial in state.trials.items() if mode is not best}
    return replace(state, trials=others)


def _left(state: SpeculationState, policy: SpeculationPolicy, now_ms: int) -> SpeculationState:
    """The running mode gives way without having lost: to a trial, or because nothing can be said of it."""
    trials = {**state.trials, state.mode: Trial(now_ms + policy.retry_ms, policy.retry_ms)}
    return replace(state, trials=trials)


def _unless_off(state: SpeculationState, policy: SpeculationPolicy, now_ms: int) -> SpeculationState:
    """The same for whatever runs, if anything does."""
    return state if state.mode is SpeculationMode.OFF else _left(state, policy, now_ms)


def _due(
    state: SpeculationState, best: SpeculationMode, open_modes: tuple[SpeculationMode, ...], now_ms: int
) -> SpeculationMode | None:
    """A mode whose trial has come. Plain decoding is tried too, once it has been left for something better."""
    others: tuple[SpeculationMode, ...] = (
        *open_modes,
        *((SpeculationMode.OFF,) if best is not SpeculationMode.OFF else ()),
    )
    for mode in others:
        trial = state.trials.get(mode)
        if mode is not best and mode is not state.mode and (trial is None or trial.next_ms <= now_ms):
            return mode
    return None


def _lost(
    trials: Mapping[SpeculationMode, Trial], mode: SpeculationMode, policy: SpeculationPolicy, now_ms: int
) -> Mapping[SpeculationMode, Trial]:
    before = trials.get(mode)
    wait_ms = policy.retry_ms if before is None else round(before.wait_ms * policy.retry_factor)
    wait_ms = min(wait_ms, max(policy.retry_ms, policy.retry_limit_ms))
    return {**trials, mode: Trial(now_ms + wait_ms, wait_ms)}


def _rate(mode: SpeculationMode, kind: RequestKind, facts: SpeculationFacts, policy: SpeculationPolicy) -> float | None:
    found = facts.rates.get((mode, kind))
    if found is None or found.tokens < policy.least_tokens or found.tokens_per_s <= 0:
        return None
    return found.tokens_per_s


def _to(
    mode: SpeculationMode, reason: Reason, state: SpeculationState, now_ms: int, gain: float | None = None
) -> SpeculationDecision:
    after = state if mode is state.mode else replace(state, mode=mode, changed_ms=now_ms)
    return SpeculationDecision(mode, reason, after, gain)
