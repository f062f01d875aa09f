"""The simulated devices against the agent that they stand for."""

from __future__ import annotations

from edge.settings import ThermalSettings
from loadtests.simulation import devices


def test_levels_begin_where_the_agents_do() -> None:
    agent = ThermalSettings()
    simulated = (devices.WARM_C, devices.HOT_C, devices.CRITICAL_C, devices.HYSTERESIS_C)
    assert simulated == (agent.warm_c, agent.hot_c, agent.critical_c, agent.hysteresis_c)
