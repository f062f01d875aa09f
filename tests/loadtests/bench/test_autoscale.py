"""The simulation of the scaling policy: what it is there to show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud.options import goals
from cloud.scaling.policy import decide
from cloud.settings import AutoscalingSettings
from loadtests.bench.autoscale import Machine, hold, play, traces

MACHINE = Machine(start_s=40, service_s=8)
GOALS = goals(AutoscalingSettings(min_replicas=0, max_replicas=8, target_ongoing_requests=8))
EAGER = replace(GOALS, up_delay_s=0, down_delay_s=0, to_zero_delay_s=0, slack_ratio=1.0)


@pytest.mark.parametrize("name", ["steady", "edge of a boundary"])
def test_margin_and_delays_spare_changes(name: str) -> None:
    rates = traces(1)[name][:1800]
    calm, eager = (play(rates, MACHINE, wanted, decide, 1) for wanted in (GOALS, EAGER))
    assert calm.changes < eager.changes
    assert calm.served >= 0.99 * eager.served


def test_without_load_nothing_runs_and_nothing_is_billed() -> None:
    idle = play([0.0] * 600, MACHINE, GOALS, decide, 1)
    assert (idle.replica_hours, idle.changes, idle.served) == (0, 0, 0)


def test_enough_fixed_replicas_let_nobody_wait() -> None:
    fixed = play([0.5] * 600, MACHINE, replace(GOALS, min_replicas=8), hold, 1)
    assert (fixed.wait_p99_s, fixed.refused_ratio, fixed.changes) == (0, 0, 0)


def test_a_full_queue_refuses() -> None:
    assert play([60.0] * 120, MACHINE, replace(GOALS, max_replicas=1), decide, 1).refused_ratio > 0.5
