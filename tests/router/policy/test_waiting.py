"""When an agent's line is too long to stand in: told early where it is measured, and never guessed."""

from __future__ import annotations

from typing import Any

import pytest

from router.policy.bulk import Bulk
from router.policy.columns import columns_of
from router.policy.decision import decide
from router.policy.model import Decision, DecisionFacts, Mode, Policy, Reason, Rejection
from router.policy.refusal import refusal
from shared.errors import NoCapacity, PrivacyUnavailable
from shared.fleet import BackendSnapshot, Zone
from shared.privacy import PrivacyClass
from tests.router.policy.builders import NOW_MS, backend, facts, fleet, policy

# 100 prompt tokens at 400/s are 250 ms, 50 output tokens at 100/s are 500 ms: a place in the line costs 750 ms.
SLOTS, QUEUED = 1, 60
PERSONAL = facts(PrivacyClass.PERSONAL)


def _lined(backend_id: str = "edge", **changes: Any) -> BackendSnapshot:
    """An agent whose first token for such a request comes after 250 + 61 * 750 = 46,000 ms."""
    return backend(
        backend_id, **{"slots_total": SLOTS, "slots_busy": SLOTS, "queued": QUEUED, "queue_limit": 900, **changes}
    )


def _policy(mode: Mode = Mode.PREFER_EDGE, **limits: float | None) -> Policy:
    return policy(mode, **{"stream_wait_ms": 30_000.0, "whole_wait_ms": 600_000.0, **limits})


def _both(asked: DecisionFacts, rules: Policy, *backends: BackendSnapshot) -> Decision:
    """The decision, which is the same over columns."""
    known = fleet(*backends)
    plain = decide(asked, known, rules, NOW_MS)
    assert decide(asked, known, rules, NOW_MS, Bulk(columns_of(known.backends))) == plain
    return plain


def test_a_line_beyond_the_limit_is_refused_with_the_time_until_it_is_short_enough() -> None:
    decision = _both(PERSONAL, _policy(), _lined())
    assert [r.reason for r in decision.rejected] == [Rejection.WAIT_TOO_LONG]
    assert decision.reason is Reason.NO_CAPACITY and decision.retry_after_s == 16
    error = refusal(decision, PERSONAL)
    assert isinstance(error, NoCapacity) and error.retry_after_s == 16 and "line" in error.message


def test_where_privacy_removed_the_rest_the_code_says_so() -> None:
    decision = _both(PERSONAL, _policy(), _lined(), backend("cloud", Zone.CLOUD))
    error = refusal(decision, PERSONAL)
    assert isinstance(error, PrivacyUnavailable) and error.retry_after_s == 16 and "line" in error.message


def test_a_line_within_the_limit_is_stood_in() -> None:
    assert len(_both(PERSONAL, _policy(), _lined(queued=38)).candidates) == 1  # 250 + 39 * 750 = 29,500
    assert len(_both(PERSONAL, _policy(), _lined(queued=39)).candidates) == 0  # 30,250
    assert len(_both(PERSONAL, _policy(stream_wait_ms=46_000.0), _lined()).candidates) == 1
    assert len(_both(PERSONAL, _policy(stream_wait_ms=None), _lined()).candidates) == 1


@pytest.mark.parametrize(
    "unknown",
    [
        {"prefill_tokens_per_s": None},
        {"decode_tokens_per_s": None},
        {"slots_total": None},
        {"slots_total": 0},
        {"slots_busy": None, "queued": None},
    ],
)
def test_without_a_measured_line_nobody_is_refused(unknown: dict[str, Any]) -> None:
    assert len(_both(PERSONAL, _policy(), _lined(**unknown)).candidates) == 1


def test_where_no_line_stands_a_long_prompt_is_no_reason() -> None:
    """Its own prompt would take as long later; and much of it may be cached."""
    asked = facts(PrivacyClass.PERSONAL, prompt_tokens=4_000)
    assert len(_both(asked, _policy(), backend("edge", prefill_tokens_per_s=10.0)).candidates) == 1


def test_a_high_limit_of_its_own_says_nothing_of_those_ahead() -> None:
    """The caller allows 4,000 tokens; an answer is taken to have as many as the policy's default at most."""
    asked = facts(PrivacyClass.PERSONAL, max_tokens=3_000)
    assert len(_both(asked, _policy(), _lined(queued=9)).candidates) == 1  # 250 + 10 * (250 + 1,000)
    assert len(_both(asked, _policy(), _lined(queued=29)).candidates) == 0


@pytest.mark.parametrize(("observed_tokens", "candidates"), [(10.0, 1), (400.0, 0)])
def test_what_answers_were_seen_to_take_wins_over_what_is_asked_for(observed_tokens: float, candidates: int) -> None:
    """At 60 in the line: 250 + 61 * (250 + 100) = 21,600 ms, or 250 + 61 * (250 + 4,000)."""
    assert len(_both(PERSONAL, _policy(), _lined(answer_tokens=observed_tokens)).candidates) == candidates


@pytest.mark.parametrize(("slot_wait_s", "candidates"), [(None, 1), (5.0, 1), (29.0, 1), (40.0, 0)])
def test_an_agent_knows_better_what_stands_in_its_line(slot_wait_s: float | None, candidates: int) -> None:
    """Two lists of long texts, say, which take longer than this request would: it counts if it is more."""
    line = _lined(queued=2, slot_wait_s=slot_wait_s)
    assert len(_both(PERSONAL, _policy(), line).candidates) == candidates


def test_the_time_to_come_back_is_the_agents_too() -> None:
    assert _both(PERSONAL, _policy(), _lined(queued=2, slot_wait_s=40.0)).retry_after_s == 11  # 250 + 40,000 - 30,000


def test_where_no_line_stands_what_an_agent_expects_refuses_nobody() -> None:
    """A report from before its line was empty, say."""
    assert len(_both(PERSONAL, _policy(), backend("edge", slot_wait_s=900.0)).candidates) == 1


def test_an_answer_that_is_not_streamed_has_the_limit_of_whole_answers() -> None:
    whole = PERSONAL._replace(request=PERSONAL.request._replace(stream=False))
    assert len(_both(whole, _policy(), _lined()).candidates) == 1
    assert len(_both(whole, _policy(whole_wait_ms=45_000.0), _lined()).candidates) == 0
    assert len(_both(whole, _policy(whole_wait_ms=None), _lined()).candidates) == 1


def test_another_agent_or_the_cloud_takes_what_may_go_there() -> None:
    decision = _both(PERSONAL, _policy(), _lined(), backend("near"))
    assert [c.backend_id for c in decision.candidates] == ["near"]
    public = _both(facts(), _policy(), _lined(), backend("cloud", Zone.CLOUD))
    assert [c.backend_id for c in public.candidates] == ["cloud"] and public.reason is Reason.EDGE_TOO_SLOW


def test_a_clouds_line_is_never_too_long() -> None:
    """New replicas may meet it, and what is seen of a cloud's first tokens holds its line already."""
    cloud = backend(
        "cloud", Zone.CLOUD, prefill_tokens_per_s=400.0, slots_total=1, slots_busy=1, queued=60, queue_limit=900
    )
    assert len(_both(facts(), _policy(), cloud).candidates) == 1


def test_the_shortest_line_says_when_to_come_back() -> None:
    decision = _both(PERSONAL, _policy(), _lined("far", queued=600), _lined("near"), backend("gone", received_ms=0))
    assert decision.retry_after_s == 16
    endless = _both(PERSONAL, _policy(), _lined(decode_tokens_per_s=1e-3))
    assert endless.retry_after_s == 300


def test_a_full_queue_comes_before_a_long_one() -> None:
    decision = _both(PERSONAL, _policy(), _lined(queue_limit=QUEUED))
    assert [r.reason for r in decision.rejected] == [Rejection.QUEUE_FULL]
