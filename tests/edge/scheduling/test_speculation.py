"""When speculation runs: rules one by one, then simulated hours with random gains, heat and traffic."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.scheduling.speculation import (
    Rate,
    Reason,
    RequestKind,
    SpeculationDecision,
    SpeculationFacts,
    SpeculationMode,
    SpeculationPolicy,
    SpeculationState,
    Trial,
    decide_speculation,
    failed,
    gain_ratio,
)
from shared.fleet import ThermalLevel

OFF, MAP, SIMPLE, DRAFT = (
    SpeculationMode.OFF,
    SpeculationMode.NGRAM_MAP_K,
    SpeculationMode.NGRAM_SIMPLE,
    SpeculationMode.DRAFT,
)
COPY, PROSE = RequestKind.COPY, RequestKind.PROSE
POLICY = SpeculationPolicy(candidates=(MAP, SIMPLE, DRAFT))
ONE = SpeculationPolicy(candidates=(MAP,))
HOUR_MS = 3_600_000


def facts(
    rates: Mapping[SpeculationMode, float],
    *,
    level: ThermalLevel = ThermalLevel.NOMINAL,
    acceptance: float = 0.5,
    tokens: int = 1000,
    kind: RequestKind = COPY,
) -> SpeculationFacts:
    return SpeculationFacts(
        level=level,
        mix={kind: 1.0},
        rates={(mode, kind): Rate(rate, tokens) for mode, rate in rates.items()},
        acceptance_ratios={mode: acceptance for mode in rates if mode is not OFF},
    )


def test_plain_decoding_is_measured_first() -> None:
    decision = decide_speculation(SpeculationState(), facts({}), POLICY, 0)
    assert (decision.mode, decision.reason) == (OFF, Reason.NOT_MEASURED)
    decision = decide_speculation(SpeculationState(), facts({OFF: 100}, tokens=255), POLICY, 0)
    assert (decision.mode, decision.reason) == (OFF, Reason.NOT_MEASURED)


def test_then_each_candidate_is_tried_for_a_dwell_and_the_fastest_stays() -> None:
    speed = {OFF: 100.0, MAP: 110.0, SIMPLE: 150.0, DRAFT: 60.0}
    known = {OFF}
    state, seen = SpeculationState(), []
    for second in range(200):
        decision = decide_speculation(state, facts({mode: speed[mode] for mode in known}), POLICY, 1000 * second)
        if decision.mode is not state.mode:
            seen.append((decision.mode, decision.reason))
        state = decision.state
        known.add(state.mode)
    assert seen == [(MAP, Reason.PROBE), (SIMPLE, Reason.PROBE), (DRAFT, Reason.PROBE), (SIMPLE, Reason.GAIN)]


@pytest.mark.parametrize(
    ("speculative", "mode", "reason"),
    [(105.1, MAP, Reason.GAIN), (104.9, OFF, Reason.NO_GAIN), (48.0, OFF, Reason.NO_GAIN)],
)
def test_it_goes_on_only_while_the_gain_is_the_margin(
    speculative: float, mode: SpeculationMode, reason: Reason
) -> None:
    plain_later = {OFF: Trial(next_ms=2 * HOUR_MS, wait_ms=HOUR_MS)}
    running = SpeculationState(MAP, changed_ms=0, trials=plain_later)
    decision = decide_speculation(running, facts({OFF: 100, MAP: speculative}), ONE, HOUR_MS)
    assert (decision.mode, decision.reason) == (mode, reason)


def test_plain_decoding_is_measured_anew_while_something_else_runs() -> None:
    running = SpeculationState(MAP, changed_ms=0, trials={OFF: Trial(next_ms=HOUR_MS, wait_ms=HOUR_MS)})
    for now_ms, mode in ((HOUR_MS - 1, MAP), (HOUR_MS, OFF)):
        assert decide_speculation(running, facts({OFF: 100, MAP: 150}), ONE, now_ms).mode is mode


@pytest.mark.parametrize("acceptance", [0.0, 0.04])
def test_a_gain_without_accepted_tokens_is_noise(acceptance: float) -> None:
    running = SpeculationState(MAP, changed_ms=0)
    decision = decide_speculation(running, facts({OFF: 100, MAP: 150}, acceptance=acceptance), ONE, HOUR_MS)
    assert (decision.mode, decision.reason) == (OFF, Reason.NO_GAIN)
    later = decide_speculation(
        decision.state, facts({OFF: 100, MAP: 150}, acceptance=acceptance), ONE, HOUR_MS + 40_000
    )
    assert (later.mode, later.reason) == (OFF, Reason.NO_GAIN)


@pytest.mark.parametrize("level", [level for level in ThermalLevel if level is not ThermalLevel.NOMINAL])
def test_heat_from_warm_up_ends_it_at_once(level: ThermalLevel) -> None:
    running = SpeculationState(MAP, changed_ms=0)
    decision = decide_speculation(running, facts({OFF: 100, MAP: 150}, level=level), POLICY, 1)
    assert (decision.mode, decision.reason) == (OFF, Reason.THERMAL)
    cool = decide_speculation(decision.state, facts({OFF: 100, MAP: 150}), POLICY, 2)
    assert (cool.mode, cool.reason) == (OFF, Reason.DWELL)


def test_sp_01_a_draft_that_does_not_fit_never_runs_and_ends_at_once() -> None:
    unfit = replace(facts({OFF: 100, DRAFT: 300}), unfit=frozenset({DRAFT}))
    policy = SpeculationPolicy(candidates=(DRAFT,))
    for now_ms in (0, HOUR_MS):
        decision = decide_speculation(SpeculationState(), unfit, policy, now_ms)
        assert (decision.mode, decision.reason) == (OFF, Reason.VOCAB_MISMATCH)
    decision = decide_speculation(SpeculationState(DRAFT, changed_ms=0), unfit, policy, 1)
    assert (decision.mode, decision.reason) == (OFF, Reason.VOCAB_MISMATCH)


def test_without_candidates_it_stays_off() -> None:
    decision = decide_speculation(SpeculationState(), facts({OFF: 100}), SpeculationPolicy(candidates=()), 0)
    assert (decision.mode, decision.reason) == (OFF, Reason.NO_CANDIDATES)


def test_a_memory_across_requests_is_no_default() -> None:
    assert SpeculationMode.NGRAM_MOD not in SpeculationPolicy().candidates


@pytest.mark.parametrize(
    "wrong",
    [{"candidates": (OFF,)}, {"candidates": (MAP, MAP)}, {"dwell_ms": -1}, {"retry_ms": 1}, {"retry_factor": 0.5}],
)
def test_a_policy_that_contradicts_itself_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"candidates|times"):
        SpeculationPolicy(**wrong)  # type: ignore[arg-type]


def test_gain_is_of_times_per_token_over_the_mix() -> None:
    mixed = SpeculationFacts(
        level=ThermalLevel.NOMINAL,
        mix={COPY: 0.5, PROSE: 0.5},
        rates={
            (OFF, COPY): Rate(100, 1000),
            (OFF, PROSE): Rate(100, 1000),
            (MAP, COPY): Rate(200, 1000),
            (MAP, PROSE): Rate(50, 1000),
        },
    )
    gain = gain_ratio(MAP, mixed, POLICY)
    assert gain == pytest.approx((0.5 / 100 + 0.5 / 100) / (0.5 / 200 + 0.5 / 50) - 1)
    assert gain is not None
    assert gain < 0  # what copying wins, prose loses twice
    only_copy = replace(mixed, mix={COPY: 1.0})
    assert gain_ratio(MAP, only_copy, POLICY) == pytest.approx(1.0)
    unknown = replace(mixed, mix={COPY: 0.4, RequestKind.CODE: 0.6})
    assert gain_ratio(MAP, unknown, POLICY) is None
    assert gain_ratio(MAP, replace(mixed, mix={}), POLICY) is None


def test_a_new_kind_that_plain_decoding_was_not_measured_on_sends_it_back_there() -> None:
    running = SpeculationState(MAP, changed_ms=0)
    moved = SpeculationFacts(
        level=ThermalLevel.NOMINAL,
        mix={PROSE: 1.0},
        rates={(OFF, COPY): Rate(100, 1000), (MAP, PROSE): Rate(40, 1000)},
        acceptance_ratios={MAP: 0.5},
    )
    decision = decide_speculation(running, moved, ONE, HOUR_MS)
    assert (decision.mode, decision.reason) == (OFF, Reason.PROBE)


def test_a_mode_that_cannot_be_started_is_tried_again_later_and_ever_later() -> None:
    state, waits = SpeculationState(), []
    known = facts({OFF: 100})
    now_ms = last_ms = 0
    while len(waits) < 4:
        now_ms += 10_000
        decision = decide_speculation(state, known, ONE, now_ms)
        if decision.mode is MAP:
            waits.append(now_ms - last_ms)
            last_ms = now_ms
            state = failed(state, MAP, ONE, now_ms)
        else:
            state = decision.state
    assert waits[1:] == [900_000, 1_800_000, 3_600_000]


def test_what_cannot_be_judged_does_not_stay_on() -> None:
    """On only while the gain is measured: where each answer has company, nothing is."""
    full = ONE.most_unjudged
    trial = SpeculationState(MAP, changed_ms=0)
    waits = replace(facts({OFF: 100}), unjudged=full - 1)
    decision = decide_speculation(trial, waits, ONE, HOUR_MS)
    assert (decision.mode, decision.reason) == (MAP, Reason.NOT_MEASURED)
    for known in ({OFF: 100.0}, {OFF: 100.0, MAP: 150.0}):  # a gain of another day is no gain either
        decision = decide_speculation(trial, replace(facts(known), unjudged=full), ONE, HOUR_MS)
        assert (decision.mode, decision.reason) == (OFF, Reason.NOT_MEASURED)
    again = decide_speculation(decision.state, replace(facts({OFF: 100}), unjudged=full), ONE, 2 * HOUR_MS)
    assert (again.mode, again.reason) == (OFF, Reason.NOT_MEASURED)  # nor is it tried in such company
    assert decide_speculation(decision.state, facts({OFF: 100}), ONE, HOUR_MS + 60_000).mode is OFF
    assert decide_speculation(decision.state, facts({OFF: 100}), ONE, 2 * HOUR_MS).reason is Reason.PROBE


def test_plain_decoding_that_does_not_start_has_lost_nothing() -> None:
    hot = SpeculationState(MAP, changed_ms=0)
    assert failed(hot, OFF, ONE, 5) == replace(hot, changed_ms=5)


@dataclass
class Device:
    """A device whose modes have true speeds; it measures what it runs."""

    speeds: Mapping[SpeculationMode, float]
    policy: SpeculationPolicy
    state: SpeculationState = field(default_factory=SpeculationState)
    tokens: float = 0.0

    def __post_init__(self) -> None:
        self.rates: dict[tuple[SpeculationMode, RequestKind], Rate] = {}

    def run(self, now_ms: int, seconds: int = 1, level: ThermalLevel = ThermalLevel.NOMINAL) -> SpeculationDecision:
        known = SpeculationFacts(
            level=level,
            mix={COPY: 1.0},
            rates=dict(self.rates),
            acceptance_ratios=dict.fromkeys(self.speeds, 0.5),
        )
        decision = decide_speculation(self.state, known, self.policy, now_ms)
        self.state = decision.state
        speed = self.speeds[self.state.mode]
        self.tokens += speed * seconds
        before = self.rates.get((self.state.mode, COPY), Rate(0, 0))
        self.rates[self.state.mode, COPY] = Rate(speed, before.tokens + int(speed * seconds))
        return decision


MODES = (OFF, MAP, SIMPLE, DRAFT)
SPEEDS = st.fixed_dictionaries({mode: st.floats(20, 300) for mode in MODES})
LEVELS = st.lists(st.tuples(st.sampled_from(ThermalLevel), st.integers(1, 120)), min_size=1, max_size=30)


@settings(max_examples=50, deadline=None)
@given(levels=LEVELS, speeds=st.lists(SPEEDS, min_size=1, max_size=4))
def test_at_most_one_switch_per_dwell_and_never_on_while_warm(
    levels: list[tuple[ThermalLevel, int]], speeds: list[dict[SpeculationMode, float]]
) -> None:
    device = Device(speeds[0], POLICY)
    switches: list[tuple[int, Reason]] = []
    now_ms = 0
    for step, (level, seconds) in enumerate(levels):
        device.speeds = speeds[step % len(speeds)]
        for _ in range(seconds):
            before = device.state.mode
            decision = device.run(now_ms, level=level)
            if level is not ThermalLevel.NOMINAL:
                assert decision.mode is OFF
            if decision.reason is Reason.GAIN:
                assert decision.gain_ratio is not None
                assert decision.gain_ratio >= POLICY.margin_ratio
            if decision.mode is not before:
                switches.append((now_ms, decision.reason))
            now_ms += 1000
    for (earlier_ms, _), (later_ms, reason) in itertools.pairwise(switches):
        assert reason is Reason.THERMAL or later_ms - earlier_ms >= POLICY.dwell_ms


@settings(max_examples=25, deadline=None)
@given(speeds=SPEEDS)
def test_after_warm_up_it_is_never_far_below_the_best_mode(speeds: dict[SpeculationMode, float]) -> None:
    """Warm-up is one trial of each candidate; then four hours. What is lost is the margin, and trials with backoff."""
    device = Device(speeds, POLICY)
    for second in range(0, 300, 5):
        device.run(1000 * second, 5)
    device.tokens = 0
    seconds = 4 * 3600
    for second in range(300, 300 + seconds, 5):
        device.run(1000 * second, 5)
    best = max(speeds.values())
    plain = speeds[OFF]
    mean = device.tokens / seconds
    floor = max(plain, best / (1 + POLICY.margin_ratio) if best > plain else plain)
    assert mean >= 0.97 * floor


@settings(max_examples=15, deadline=None)
@given(slow=st.floats(20, 104))
def test_a_loser_is_tried_ever_less_often(slow: float) -> None:
    device = Device({OFF: 100.0, MAP: slow}, ONE)
    trials = []
    for second in range(0, 12 * 3600, 5):
        before = device.state.mode
        if device.run(1000 * second, 5).mode is MAP and before is OFF:
            trials.append(second)
    gaps = [later - earlier for earlier, later in itertools.pairwise(trials)]
    assert len(trials) >= 3
    assert all(later >= 1.8 * earlier or later >= 28_800 for earlier, later in itertools.pairwise(gaps))
