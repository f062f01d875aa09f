"""TH-01: several sensors, of which some fall silent, say nonsense, stand still, or are gone for good."""

from __future__ import annotations

from collections.abc import Mapping

from edge.service.thermal.panel import Panel, SensorState, StuckRule
from edge.service.thermal.sensors import Sensor, SensorFault

STUCK = StuckRule(busy_ms=5_000, below_c=70)
SECOND_MS = 1000


class _Device:
    """A panel that is shown one sample a second; None is a sensor that cannot be read, a string one that is absurd."""

    def __init__(self) -> None:
        self.panel = Panel()
        self.now_ms = 0

    def show(self, times: int = 4, *, busy: float = 0.0, **readings: float | str | None) -> Panel:
        for _ in range(times):
            self.now_ms += SECOND_MS
            self.panel = self.panel.after(
                [_sensor(name, value) for name, value in readings.items()],
                self.now_ms,
                busy_ms=busy * SECOND_MS,
                stuck=STUCK,
                forget_ms=60_000,
            )
        return self.panel


def _sensor(name: str, value: float | str | None) -> Sensor:
    if value is None:
        return Sensor(name, None, SensorFault.UNREADABLE)
    return Sensor(name, None, SensorFault.IMPLAUSIBLE) if isinstance(value, str) else Sensor(name, value)


def _states(panel: Panel) -> Mapping[str, SensorState]:
    return panel.states()


def test_the_hottest_sensor_decides() -> None:
    panel = _Device().show(cpu=60.0, board=40.0)
    assert (panel.temperature_c, panel.decider) == (60.0, "cpu")


def test_nothing_at_all_is_not_known() -> None:
    panel = _Device().show()
    assert (panel.temperature_c, panel.least_c, panel.blind) == (None, None, False)


def test_a_spike_of_one_sensor_is_outvoted_by_its_own_history() -> None:
    """TH-03: also when two sensors have one each, one after the other."""
    device = _Device()
    device.show(cpu=55.0, board=40.0)
    device.show(1, cpu=120.0, board=40.0)
    panel = device.show(1, cpu=55.0, board=120.0)
    assert panel.temperature_c == 55.0


def test_when_the_sensor_that_decided_is_lost_cooler_ones_say_nothing() -> None:
    for fault in (None, "absurd"):
        device = _Device()
        device.show(cpu=60.0, board=40.0)
        panel = device.show(cpu=fault, board=40.0)
        assert panel.temperature_c is None
        assert panel.least_c == 40.0
        assert panel.blind
        assert device.show(100, cpu=fault, board=40.0).blind
        assert device.show(cpu=50.0, board=40.0).temperature_c == 50.0


def test_when_another_sensor_is_lost_nothing_is_lost() -> None:
    device = _Device()
    device.show(cpu=60.0, gpu=40.0)
    panel = device.show(cpu=60.0)
    assert panel.temperature_c == 60.0
    assert _states(panel) == {"cpu": SensorState.OK, "gpu": SensorState.MISSING}
    assert "gpu" not in device.show(70, cpu=60.0).tracks  # gone for good: forgotten


def test_states() -> None:
    device = _Device()
    assert _states(device.show(1, cpu=60.0)) == {"cpu": SensorState.SETTLING}
    assert _states(device.show(3, cpu=60.0, a=None, b="absurd")) == {
        "cpu": SensorState.OK,
        "a": SensorState.MISSING,
        "b": SensorState.ABSURD,
    }
    assert _states(device.show(20, busy=1.0, cpu=60.0))["cpu"] is SensorState.STUCK
    assert device.panel.counts() == {SensorState.STUCK: 1, SensorState.MISSING: 2}


def test_stuck_is_judged_by_work_and_not_by_time() -> None:
    device = _Device()
    assert device.show(600, cpu=30.0).temperature_c == 30.0
    assert device.show(4, busy=1.0, cpu=30.0).temperature_c == 30.0
    assert device.show(1, busy=1.0, cpu=30.0).temperature_c is None
    assert device.show(1, busy=1.0, cpu=30.1).temperature_c is not None


def test_a_hot_reading_that_stands_still_is_believed() -> None:
    assert _Device().show(600, busy=1.0, cpu=90.0).temperature_c == 90.0
