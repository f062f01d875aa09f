"""How long a first token is waited for: by its prediction where an agent reports, and never beyond bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.dispatch.patience import Patience, PatienceRules
from router.policy.decision import decide
from router.policy.model import Candidate
from shared.fleet import Zone
from shared.testing.clock import ManualClock
from tests.router.policy.builders import NOW_MS, backend, facts, fleet, policy, served

RULES = PatienceRules(plain_s=30.0, ratio=2.0, most_s=600.0)
_RATES = st.floats(min_value=1e-306, max_value=1e306)
_PREDICTED = st.one_of(st.none(), st.floats(min_value=0.0))
_UNTIMED = settings(deadline=None)


def _candidate(predicted_ms: float | None, zone: Zone = Zone.DEVICE) -> Candidate:
    return Candidate("edge-1", zone, "http://edge", predicted_ms, None)


@pytest.mark.parametrize(
    ("predicted_s", "limit_s"), [(None, 30), (0.0, 30), (15.0, 30), (31.0, 62), (300.0, 600), (301.0, 600)]
)
def test_fo_07_a_device_gets_twice_what_was_predicted_for_it(predicted_s: float | None, limit_s: float) -> None:
    predicted_ms = None if predicted_s is None else predicted_s * 1000
    assert RULES.limit_s(_candidate(predicted_ms)) == limit_s
    assert RULES.limit_s(_candidate(predicted_ms, Zone.CLOUD)) == 30, "what a cloud was seen to take is no promise"


@given(_PREDICTED, _PREDICTED, st.sampled_from(Zone))
def test_the_limit_grows_with_the_prediction_and_is_bounded(one: float | None, other: float | None, zone: Zone) -> None:
    low, high = sorted((one or 0.0, other or 0.0))
    limits = [RULES.limit_s(_candidate(predicted, zone)) for predicted in (None, low, high)]
    assert limits == sorted(limits)
    assert all(30.0 <= limit_s <= 600.0 for limit_s in limits)
    if zone is not Zone.CLOUD:
        assert limits[2] >= min(high / 1000, 600.0), "never less than was predicted"


def test_a_figure_that_is_none_gives_a_bound() -> None:
    assert RULES.limit_s(_candidate(math.nan)) == RULES.limit_s(_candidate(math.inf)) == 600.0


@_UNTIMED
@given(_RATES, _RATES, st.integers(0, 2**53), st.floats(0, 86_400), st.integers(1, 10**7))
def test_whatever_a_heartbeat_says_the_limit_is_finite(
    prefill: float, decode: float, queued: int, turn_s: float, prompt_tokens: int
) -> None:
    slow = backend(
        "edge-1",
        prefill_tokens_per_s=prefill,
        decode_tokens_per_s=decode,
        slots_total=1,
        slots_busy=1,
        queued=queued,
        queue_limit=None,
        turn_s=turn_s,
        models=(served(None),),
    )
    [candidate] = decide(facts(prompt_tokens=prompt_tokens), fleet(slow), policy(), NOW_MS).candidates
    assert 30.0 <= RULES.limit_s(candidate) <= 600.0


class _World:
    """An agent of which is heard now and then."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.began_ms = self.clock.now_ms()
        self.heard_ms: int | None = self.clock.now_ms()
        self.patience = Patience(
            RULES, self.clock, heard_ms=lambda backend_id: self.heard_ms, stale_after_ms=lambda: 3_000
        )

    async def waits_s(self, predicted_ms: float | None, *, beats_s: float) -> float:
        """How long is waited in all, where the agent reports for as long as `beats_s`."""
        waited_s = 0.0
        while (left_s := self.patience.left_s(_candidate(predicted_ms), waited_s)) > 0:
            await self.clock.advance(left_s)
            waited_s += left_s
            if self.heard_ms is not None:
                self.heard_ms = self.began_ms + int(min(waited_s, beats_s) * 1000)
        return waited_s


@pytest.mark.parametrize(
    ("predicted_ms", "beats_s", "waits_s"),
    [
        (40_000, math.inf, 80),
        (40_000, 0, 30),  # it was silent for long when the plain limit came
        (40_000, 50, 53),  # and here it fell silent on the way
        (1_000, math.inf, 30),
        (None, math.inf, 30),
        (1e306, math.inf, 600),
    ],
)
async def test_a_slow_device_is_waited_for_while_it_reports(
    predicted_ms: float | None, beats_s: float, waits_s: float
) -> None:
    world = _World()
    assert await world.waits_s(predicted_ms, beats_s=beats_s) == pytest.approx(waits_s, abs=0.01)


async def test_a_backend_that_never_reports_has_the_plain_limit() -> None:
    world = _World()
    world.heard_ms = None
    assert await world.waits_s(40_000, beats_s=math.inf) == pytest.approx(30)
