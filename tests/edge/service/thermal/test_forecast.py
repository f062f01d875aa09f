"""The fitted thermal model against bodies whose constants are known, with the noise of real sensors."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest

from edge.service.thermal.forecast import Forecast

PERIOD_MS = 1000
STEP_MS = 250


class _Body:
    """A first-order body: time constant, temperature at rest, degrees that full load adds."""

    def __init__(self, tau_s: float, rest_c: float, gain_c: float) -> None:
        self.tau_s, self.rest_c, self.gain_c = tau_s, rest_c, gain_c
        self.celsius = rest_c

    def step(self, load: float, seconds: float) -> None:
        target = self.rest_c + self.gain_c * load
        self.celsius = target + (self.celsius - target) * math.exp(-seconds / self.tau_s)


def _fitted(
    body: _Body, load: Callable[[float], float], seconds: int, show: Callable[[float], float | None]
) -> Forecast:
    forecast = Forecast()
    for step in range(int(seconds * 1000 / STEP_MS)):
        now_ms = step * STEP_MS
        forecast = forecast.after(show(body.celsius), load(now_ms / 1000), now_ms, period_ms=PERIOD_MS)
        body.step(load(now_ms / 1000), STEP_MS / 1000)
    return forecast


def _exact(celsius: float) -> float:
    return celsius


def _by_turns(second: float) -> float:
    return 1.0 if second % 40 < 20 else 0.2


@pytest.mark.parametrize("tau_s", [10.0, 60.0, 200.0])
def test_the_constants_of_the_body_are_found(tau_s: float) -> None:
    body = _Body(tau_s, rest_c=40, gain_c=50)
    forecast = _fitted(body, _by_turns, 300, _exact)
    assert forecast.tau_s == pytest.approx(tau_s, rel=0.1)
    assert forecast.rest_c(1.0) == pytest.approx(90, abs=2)
    assert forecast.rest_c(0.0) == pytest.approx(40, abs=2)


def test_the_predicted_time_is_the_true_one() -> None:
    body = _Body(30.0, rest_c=40, gain_c=60)
    forecast = _fitted(body, _by_turns, 200, _exact)
    predicted = forecast.seconds_to(85, body.celsius, 1.0)
    assert predicted is not None
    body.step(1.0, predicted)
    assert body.celsius == pytest.approx(85, abs=1)


def test_a_sensor_of_whole_degrees_with_noise_still_tells() -> None:
    fraction = random.Random(1)
    body = _Body(30.0, rest_c=40, gain_c=60)
    forecast = _fitted(body, _by_turns, 300, lambda c: float(round(c + fraction.gauss(0, 0.2))))
    assert forecast.rest_c(1.0) == pytest.approx(100, abs=15)


def test_surroundings_that_heat_up_steadily_are_told_too() -> None:
    """A fan that stops: no rest is in sight, and the time to the next level still is."""
    forecast, body = Forecast(), _Body(20.0, rest_c=40, gain_c=20)
    for step in range(800):
        body.rest_c += 0.05
        forecast = forecast.after(body.celsius, 1.0, step * STEP_MS, period_ms=PERIOD_MS)
        body.step(1.0, STEP_MS / 1000)
    target_c = body.celsius + 6
    assert forecast.seconds_to(target_c, body.celsius, 1.0) == pytest.approx(6 / 0.2, rel=0.15)


def test_what_is_not_in_sight_is_none() -> None:
    body = _Body(30.0, rest_c=40, gain_c=30)
    forecast = _fitted(body, _by_turns, 200, _exact)
    assert forecast.seconds_to(85, 60.0, 1.0) is None  # ends at 70
    assert forecast.seconds_to(70.5, 69.0, 1.0) is None
    assert forecast.seconds_to(85, None, 1.0) is None
    assert forecast.seconds_to(85, 86.0, 0.0) == 0.0


def _running_away() -> Callable[[float], float]:
    steps = itertools.count()
    return lambda _: 40 + 1.02 ** next(steps)


@pytest.mark.parametrize(
    "show",
    [
        pytest.param(lambda _: 50.0, id="a constant"),
        pytest.param(lambda _: None, id="no reading"),
        pytest.param(_running_away(), id="the hotter, the faster it heats"),
    ],
)
def test_what_is_no_warm_body_predicts_nothing(show: Callable[[float], float | None]) -> None:
    forecast = _fitted(_Body(30.0, 40, 50), lambda _: 1.0, 60, show)
    assert forecast.seconds_to(85, 60.0, 1.0) is None


def test_a_gap_breaks_the_series_and_not_the_model() -> None:
    body = _Body(30.0, rest_c=40, gain_c=60)
    readings = iter(range(10**6))
    forecast = _fitted(body, _by_turns, 300, lambda c: None if next(readings) % 50 > 40 else c)
    assert forecast.tau_s == pytest.approx(30, rel=0.1)


def test_it_follows_a_device_whose_cooling_changes() -> None:
    """A fan that stops, a hot day: old samples fade."""
    forecast, body = Forecast(), _Body(20.0, rest_c=40, gain_c=30)
    for step in range(4000):
        if step == 1600:
            body.rest_c, body.gain_c = 55.0, 45.0
        load = _by_turns(step * 0.25)
        forecast = forecast.after(body.celsius, load, step * STEP_MS, period_ms=PERIOD_MS)
        body.step(load, 0.25)
    assert forecast.rest_c(1.0) == pytest.approx(100, abs=4)
