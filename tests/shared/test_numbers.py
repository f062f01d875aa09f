"""Small figures that policies rest on: backoff, running means, strictness of privacy classes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.backoff import full_jitter_s
from shared.privacy import Action, PrivacyClass, is_stricter, narrowest, strictest
from shared.windows import Ewma


@given(st.integers(0, 10**6), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_never_over_its_cap(attempt: int, fraction: float) -> None:
    assert 0 <= full_jitter_s(attempt, base_s=0.1, cap_s=5, fraction=fraction) <= 5


def test_waits_double_until_the_cap() -> None:
    waits = [full_jitter_s(n, base_s=1, cap_s=10, fraction=0.5) for n in range(6)]
    assert waits == [0.5, 1, 2, 4, 5, 5]


def test_a_mean_takes_its_first_sample_whole_and_then_its_share() -> None:
    mean = Ewma().updated(100, alpha=0.25)
    assert mean.value == 100
    assert mean.updated(200, alpha=0.25).value == 125


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0.01, 1))
def test_a_mean_stays_within_its_samples(samples: list[float], alpha: float) -> None:
    mean = Ewma()
    for sample in samples:
        mean = mean.updated(sample, alpha=alpha)
    assert mean.value is not None
    assert min(samples) - 1e-6 <= mean.value <= max(samples) + 1e-6


@pytest.mark.parametrize(("left", "right"), list(itertools.product(PrivacyClass, PrivacyClass)))
def test_of_two_classes_the_stricter_one_wins_in_any_order(left: PrivacyClass, right: PrivacyClass) -> None:
    assert strictest(left, right) == strictest(right, left)
    assert not is_stricter(left, strictest(left, right))
    assert is_stricter(left, right) == (strictest(left, right) is left and left is not right)


def test_unknown_is_the_strictest_class_and_none_is_public() -> None:
    assert strictest(*PrivacyClass) is PrivacyClass.UNKNOWN
    assert strictest() is PrivacyClass.PUBLIC


def test_the_narrowest_action_wins_and_none_is_any() -> None:
    assert narrowest(Action.ANY, Action.EDGE_ONLY, Action.MASK) is Action.EDGE_ONLY
    assert narrowest(*Action) is Action.BLOCK
    assert narrowest() is Action.ANY
