"""A device that is about to throttle counts as slow before it is; one that is not, as it says."""

from __future__ import annotations

import pytest

from router.fleet.foresight import HORIZON_S, foreseen_ratio
from shared.fleet import BackendState, Heartbeat, ThermalLevel


def _beat(level: ThermalLevel, seconds: float | None, derate_ratio: float = 1.0) -> Heartbeat:
    return Heartbeat(
        backend_id="pi",
        instance="instance-a",
        sequence=1,
        url="http://pi",
        state=BackendState.READY,
        level=level,
        derate_ratio=derate_ratio,
        seconds_to_throttle=seconds,
    )


@pytest.mark.parametrize("seconds", [None, HORIZON_S + 0.1, 500.0])
def test_what_is_not_near_changes_nothing(seconds: float | None) -> None:
    for level in ThermalLevel:
        assert foreseen_ratio(_beat(level, seconds, 0.7)) == 0.7


def test_each_level_is_worth_less_when_the_next_is_near() -> None:
    near = [
        foreseen_ratio(_beat(level, 1.0, derate))
        for level, derate in ((ThermalLevel.NOMINAL, 1.0), (ThermalLevel.WARM, 0.9), (ThermalLevel.HOT, 0.6))
    ]
    assert near == sorted(near, reverse=True)
    assert near[0] < 1.0 and near[1] < 0.9 and near[2] < 0.1


def test_it_never_credits_more_than_the_device_says() -> None:
    assert foreseen_ratio(_beat(ThermalLevel.NOMINAL, 0.0, 0.2)) == 0.2
    assert foreseen_ratio(_beat(ThermalLevel.CRITICAL, 0.0, 0.3)) == 0.3
