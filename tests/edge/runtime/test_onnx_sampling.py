"""Choosing tokens: the arithmetic of each field, against what the field's definition says."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from edge.runtime.onnx.sampling import Sampler, SamplingRules, log_probabilities

LOGITS = np.log(np.array([0.5, 0.25, 0.15, 0.07, 0.03], dtype=np.float32))


def drawn(rules: SamplingRules, count: int = 2000, prompt: list[int] | None = None) -> Counter[int]:
    """What fresh samplers with consecutive seeds draw first."""
    return Counter(
        Sampler(SamplingRules(**{**_fields(rules), "seed": seed}), prompt or []).draw(LOGITS) for seed in range(count)
    )


def _fields(rules: SamplingRules) -> dict[str, object]:
    return {name: getattr(rules, name) for name in rules.__dataclass_fields__}


def test_temperature_zero_takes_the_most_likely() -> None:
    assert set(drawn(SamplingRules(temperature=0), 20)) == {0}


def test_temperature_one_follows_the_model() -> None:
    found = drawn(SamplingRules())
    for token, chance in enumerate(np.exp(LOGITS)):
        assert found[token] / 2000 == pytest.approx(float(chance), abs=0.04)


def test_a_low_temperature_sharpens_and_a_high_one_flattens() -> None:
    sharp, flat = drawn(SamplingRules(temperature=0.5)), drawn(SamplingRules(temperature=2.0))
    assert sharp[0] > drawn(SamplingRules())[0] > flat[0]


@pytest.mark.parametrize(
    ("rules", "possible"),
    [
        (SamplingRules(top_k=2), {0, 1}),
        (SamplingRules(top_k=99), {0, 1, 2, 3, 4}),
        (SamplingRules(top_p=0.4), {0}),
        (SamplingRules(top_p=0.6), {0, 1}),
        (SamplingRules(min_p=0.2), {0, 1, 2}),
        (SamplingRules(bias={0: -math.inf}), {1, 2, 3, 4}),
        (SamplingRules(bias={4: 100.0}), {4}),
        (SamplingRules(top_k=3, bias={0: -math.inf}), {1, 2, 3}),
    ],
)
def test_what_remains_possible(rules: SamplingRules, possible: set[int]) -> None:
    assert set(drawn(rules)) == possible


def test_the_grammar_decides_before_everything_else() -> None:
    allowed = np.array([False, False, True, True, False])
    sampler = Sampler(SamplingRules(bias={0: 100.0}, temperature=0), [])
    assert sampler.draw(LOGITS, allowed) == 2


def test_penalties_count_what_was_drawn_and_not_the_prompt() -> None:
    # Logits -0.69, -1.39, -1.90, -2.66: each draw of a token costs it 0.5.
    frequency = Sampler(SamplingRules(temperature=0, frequency_penalty=0.5), [0])
    assert [frequency.draw(LOGITS) for _ in range(6)] == [0, 0, 1, 0, 1, 2]
    presence = Sampler(SamplingRules(temperature=0, presence_penalty=2.0), [0])
    assert [presence.draw(LOGITS) for _ in range(4)] == [0, 1, 2, 3]


def test_the_repetition_penalty_counts_the_prompt_too() -> None:
    # Negative logits are multiplied: ln 0.5 * 3 lies below ln 0.25.
    assert Sampler(SamplingRules(temperature=0, repetition_penalty=3.0), [0]).draw(LOGITS) == 1


def test_a_seed_repeats_and_the_choices_of_one_request_differ() -> None:
    rules = SamplingRules(seed=7)

    def sequence(rules: SamplingRules) -> list[int]:
        sampler = Sampler(rules, [])
        return [sampler.draw(LOGITS) for _ in range(20)]

    assert sequence(rules) == sequence(rules) == sequence(rules.for_choice(0))
    assert sequence(rules.for_choice(1)) != sequence(rules)
    assert sequence(rules.for_choice(1)) == sequence(rules.for_choice(1))


def test_logits_are_left_as_they_are() -> None:
    before = LOGITS.copy()
    Sampler(SamplingRules(bias={1: 5.0}, temperature=0.5), []).draw(LOGITS)
    assert np.array_equal(before, LOGITS)


def test_log_probabilities_are_those_of_the_model() -> None:
    own, best = log_probabilities(LOGITS * 1.0 + 3.0, 2, 2)
    assert own == pytest.approx(math.log(0.15), abs=1e-6)
    assert [token for token, _ in best] == [0, 1]
    assert best[0][1] == pytest.approx(math.log(0.5), abs=1e-6)
    assert log_probabilities(LOGITS, 2, 0)[1] == []


@pytest.mark.parametrize(
    ("window", "expected"), [(None, [1, 2, 3, 4]), (0, [0, 0, 0, 0]), (1, [1, 0, 1, 0]), (2, [1, 2, 0, 1])]
)
def test_penalties_look_back_as_far_as_they_are_told(window: int | None, expected: list[int]) -> None:
    rules = SamplingRules(temperature=0, repetition_penalty=9.0, penalty_window_tokens=window)
    sampler = Sampler(rules, [4, 0] if window else [0])
    assert [sampler.draw(LOGITS) for _ in range(4)] == expected
