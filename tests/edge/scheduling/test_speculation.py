"""Whether a draft may speak for a target, and when speculation runs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.scheduling.speculation import (
    Mismatch,
    Reason,
    SpeculationFacts,
    SpeculationPolicy,
    Vocabulary,
    decide_speculation,
    vocabulary_mismatch,
)
from shared.fleet import ThermalLevel

TARGET = Vocabulary(tokens=128256, tokens_sha256="a" * 64, special_ids={"bos": 1, "eos": 2})
POLICY = SpeculationPolicy(margin_ratio=0.05, dwell_ms=30_000)
FACTS = SpeculationFacts(
    on=False,
    changed_ms=None,
    level=ThermalLevel.NOMINAL,
    plain_tokens_per_s=100.0,
    speculative_tokens_per_s=150.0,
)


@pytest.mark.parametrize(
    ("draft", "mismatch"),
    [
        (TARGET, None),
        (replace(TARGET, tokens=32000), Mismatch.SIZE),
        (replace(TARGET, tokens_sha256="b" * 64), Mismatch.TEXT),
        (replace(TARGET, special_ids={"bos": 1, "eos": 3}), Mismatch.SPECIAL_IDS),
        (replace(TARGET, special_ids={"bos": 1}), Mismatch.SPECIAL_IDS),
    ],
)
def test_sp_01_vocabularies_must_agree_in_size_text_and_special_ids(
    draft: Vocabulary, mismatch: Mismatch | None
) -> None:
    assert vocabulary_mismatch(TARGET, draft) is mismatch


@pytest.mark.parametrize("mismatch", Mismatch)
def test_sp_01_a_mismatch_keeps_speculation_off_whatever_it_gains(mismatch: Mismatch) -> None:
    decision = decide_speculation(replace(FACTS, mismatch=mismatch, on=True, changed_ms=0), POLICY, 1)
    assert (decision.on, decision.reason) == (False, Reason.VOCAB_MISMATCH)


@pytest.mark.parametrize(
    ("speculative", "on", "reason"),
    [
        (105.0, True, Reason.GAIN),
        (104.9, False, Reason.NO_GAIN),
        (48.0, False, Reason.NO_GAIN),
        (None, False, Reason.NOT_MEASURED),
    ],
)
def test_it_runs_only_where_it_is_measurably_faster(speculative: float | None, on: bool, reason: Reason) -> None:
    decision = decide_speculation(replace(FACTS, speculative_tokens_per_s=speculative), POLICY, 0)
    assert (decision.on, decision.reason) == (on, reason)


@pytest.mark.parametrize("level", [level for level in ThermalLevel if level is not ThermalLevel.NOMINAL])
def test_heat_turns_it_off_at_once(level: ThermalLevel) -> None:
    decision = decide_speculation(replace(FACTS, on=True, changed_ms=0, level=level), POLICY, 1)
    assert (decision.on, decision.reason) == (False, Reason.THERMAL)


@given(rates=st.lists(st.floats(1, 300), min_size=2, max_size=60))
def test_gains_that_come_and_go_switch_it_at_most_once_per_dwell(rates: list[float]) -> None:
    facts, switches = FACTS, []
    for second, rate in enumerate(rates):
        now_ms = 1000 * second
        decision = decide_speculation(replace(facts, speculative_tokens_per_s=rate), POLICY, now_ms)
        if decision.on != facts.on:
            switches.append(now_ms)
            facts = replace(facts, on=decision.on, changed_ms=now_ms)
    assert all(later - earlier >= POLICY.dwell_ms for earlier, later in itertools.pairwise(switches))
