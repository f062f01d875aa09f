"""The scaling policy, case by case: pressure of requests and cache, margins, delays, bounds, sleep and waking."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.options import goals
from cloud.scaling.policy import Goals, Pressure, Wish, decide, desired
from cloud.scaling.serve import KV_METRIC, ServePolicy
from cloud.settings import AutoscalingSettings

GOALS = Goals(target_requests=10, min_replicas=1, max_replicas=8, up_delay_s=5, down_delay_s=300, to_zero_delay_s=600)


@pytest.mark.parametrize(
    ("replicas", "requests", "kv", "wanted"),
    [
        (1, 10, (), 1),
        (1, 11, (), 2),
        (1, 95, (), 8),
        (2, 17, (), 2),  # one replica would be over the target
        (2, 9, (), 2),  # it would not, but without a margin
        (2, 8, (), 1),
        (4, 8, (), 1),
        (1, 2, (0.9,), 2),
        (2, 2, (0.95, 0.95), 3),
        (3, 2, (0.3, 0.3, 0.3), 2),
        (2, 2, (0.3, 0.3), 1),
        (2, 2, (0.4, 0.4), 2),
        (4, 0, (), 1),
        (1, 0, (), 1),
        (1, 500, (), 8),
    ],
)
def test_what_load_asks_for(replicas: int, requests: float, kv: tuple[float, ...], wanted: int) -> None:
    assert desired(Pressure(replicas, requests, kv), GOALS) == wanted


def test_a_wish_must_last_without_a_break() -> None:
    busy, calm = Pressure(1, 25), Pressure(1, 10)
    replicas, wish = decide(busy, GOALS, Wish(), 100)
    assert (replicas, wish) == (1, Wish(1, 100))
    assert decide(busy, GOALS, wish, 104.9) == (1, wish)
    assert decide(busy, GOALS, wish, 105) == (3, Wish())
    assert decide(calm, GOALS, wish, 104) == (1, Wish())  # and starts anew after a pause
    assert decide(Pressure(3, 2), GOALS, wish, 106) == (3, Wish(-1, 106))


def test_only_the_last_replica_waits_for_sleep_and_a_request_wakes_at_once() -> None:
    sleepy = replace(GOALS, min_replicas=0)
    assert decide(Pressure(3, 0), sleepy, Wish(-1, 0), 300)[0] == 1
    assert decide(Pressure(1, 0), sleepy, Wish(-1, 0), 599)[0] == 1
    assert decide(Pressure(1, 0), sleepy, Wish(-1, 0), 600)[0] == 0
    assert decide(Pressure(0, 0), sleepy, Wish(), 9000) == (0, Wish())
    assert decide(Pressure(0, 1), sleepy, Wish(), 9000) == (1, Wish())
    assert decide(Pressure(0, 35), sleepy, Wish(), 9000) == (4, Wish())


@given(
    replicas=st.integers(0, 20),
    requests=st.floats(0, 1000),
    kv=st.lists(st.floats(0, 1), max_size=8).map(tuple),
    direction=st.sampled_from([-1, 0, 1]),
    age=st.floats(0, 10_000),
)
def test_bounds_hold_and_what_is_decided_is_wanted(
    replicas: int, requests: float, kv: tuple[float, ...], direction: int, age: float
) -> None:
    pressure = Pressure(replicas, requests, kv)
    decided, wish = decide(pressure, GOALS, Wish(direction, 0.0), age)
    assert decided in (replicas, desired(pressure, GOALS))
    assert GOALS.min_replicas <= desired(pressure, GOALS) <= GOALS.max_replicas
    assert wish.direction == 0 or decided == replicas


@given(requests=st.floats(0, 80), kv=st.floats(0, 1), replicas=st.integers(1, 8))
def test_a_steady_load_settles(requests: float, kv: float, replicas: int) -> None:
    """Whatever was added for a load is not removed under the same load."""
    now_s, wish, seen = 0.0, Wish(), []
    for _ in range(40):
        shares = (kv / replicas,) * replicas if requests else ()
        replicas, wish = decide(Pressure(replicas, requests, shares), GOALS, wish, now_s)
        seen.append(replicas)
        now_s += 60
    assert len(set(seen[20:])) == 1


def test_serve_brings_its_state_and_metrics() -> None:
    policy = ServePolicy(**{name: getattr(GOALS, name) for name in GOALS.__dataclass_fields__})
    context = SimpleNamespace(
        target_num_replicas=1,
        total_num_requests=3.0,
        aggregated_metrics={KV_METRIC: {"a": 0.95}},
        policy_state=None,
        current_time=50.0,
    )
    replicas, state = policy(context)
    assert replicas == 1
    context.policy_state, context.current_time = state, 56.0
    assert policy(context)[0] == 2
    context.aggregated_metrics = None
    assert policy(context)[0] == 1


def test_settings_reach_the_policy() -> None:
    made = goals(AutoscalingSettings(min_replicas=0, max_replicas=4, upscale_delay_s=2, kv_ceiling_ratio=0.7))
    assert (made.min_replicas, made.max_replicas, made.up_delay_s, made.kv_ceiling_ratio) == (0, 4, 2, 0.7)
