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
from shared.fleet import BackendSnapshot, BackendState, Breaker, Zone
from shared.privacy import PrivacyClass
from tests.router.policy.builders import MODEL, NOW_MS, backend, facts, fleet, policy, served

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


@pytest.mark.parametrize(("turn_s", "candidates"), [(0.4, 1), (0.48, 1), (0.5, 0), (2.0, 0)])
def test_those_ahead_take_as_long_as_turns_lately_took(turn_s: float, candidates: int) -> None:
    """At 60 in the line: 250 + 61 turns, however long this request would take itself."""
    assert len(_both(PERSONAL, _policy(), _lined(turn_s=turn_s)).candidates) == candidates


def test_a_long_prompt_behind_short_ones_waits_for_short_ones() -> None:
    """Five chats of a second each stand ahead of 2,000 tokens of prompt: 5,000 + 6,000 ms, not 5,000 + 6 * 5,500."""
    asked = facts(PrivacyClass.PERSONAL, prompt_tokens=2_000)
    assert _both(asked, _policy(), _lined(queued=5)).reason is Reason.NO_CAPACITY
    taken = _both(asked, _policy(), _lined(queued=5, turn_s=1.0))
    assert [candidate.predicted_ttft_ms for candidate in taken.candidates] == [11_000.0]


def test_a_short_prompt_behind_long_ones_waits_for_long_ones() -> None:
    """The line of one agent moves by 20 s, that of the other by 1 s, with as many in both."""
    slow, fast = _lined("a", queued=0, turn_s=20.0), _lined("b", queued=0, turn_s=1.0)
    decision = _both(PERSONAL, _policy(), slow, fast)
    assert [(c.backend_id, c.predicted_ttft_ms) for c in decision.candidates] == [("b", 1_250.0), ("a", 20_250.0)]


def test_turns_do_not_matter_where_a_slot_is_free() -> None:
    decision = _both(PERSONAL, _policy(), backend("edge", turn_s=50.0))
    assert [candidate.predicted_ttft_ms for candidate in decision.candidates] == [250.0]


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


def _slow_cloud(**changes: Any) -> BackendSnapshot:
    return backend("cloud", Zone.CLOUD, **{"ttft_ms": 60_000.0, **changes})


def _order(asked: DecisionFacts, rules: Policy, *backends: BackendSnapshot) -> list[str]:
    return [candidate.backend_id for candidate in _both(asked, rules, *backends).candidates]


def test_a_part_of_the_line_is_kept_for_what_no_cloud_may_serve() -> None:
    """Public text fills a slow agent's line up to half of 30 s, however slow the cloud is; personal data all of it."""
    rules = _policy(shared_line_ratio=0.5)
    short, long = _lined(queued=13, turn_s=1.0), _lined(queued=15, turn_s=1.0)  # 14,250 and 16,250 ms
    assert _order(facts(), rules, short, _slow_cloud()) == ["edge", "cloud"]
    assert _order(facts(), rules, long, _slow_cloud()) == ["cloud", "edge"]
    assert _both(facts(), rules, long, _slow_cloud()).reason is Reason.EDGE_TOO_SLOW
    assert _order(PERSONAL, rules, long, _slow_cloud()) == ["edge"]
    assert _order(facts(), _policy(shared_line_ratio=1.0), long, _slow_cloud()) == ["edge", "cloud"]


@pytest.mark.parametrize(
    "cloud",
    [
        {"state": BackendState.FAILED},
        {"models": (served(model="other"),)},
        {"models": (served(features=("logprobs",)),)},
        {"breaker": Breaker.OPEN},
    ],
)
def test_nothing_is_kept_where_no_cloud_can_serve(cloud: dict[str, Any]) -> None:
    asked = facts(features=frozenset({"tools"}))
    slow, long = _lined("slow", queued=0, turn_s=19.0), _lined("long", queued=15, turn_s=1.0)  # 19,250 and 16,250 ms
    assert _order(asked, _policy(shared_line_ratio=0.1), slow, long, _slow_cloud(**cloud)) == ["long", "slow"]


@pytest.mark.parametrize(
    "cloud",
    [
        {"state": BackendState.SCALED_TO_ZERO},
        {"ttft_ms": None, "slots_busy": 2},
        {"models": (served(context_tokens=100),)},
    ],
)
def test_a_cloud_that_would_be_asked_later_keeps_nothing_back(cloud: dict[str, Any]) -> None:
    """One that must be started, is on trial already, or has no room: the agents stand as they would without it."""
    long, longer = _lined("long", queued=15, turn_s=1.0), _lined("unmeasured", queued=20, slots_total=None, turn_s=3.0)
    order = _order(facts(), _policy(shared_line_ratio=0.1), long, longer, _slow_cloud(**cloud))
    assert order == ["long", "unmeasured", "cloud"]


def test_what_an_agent_expects_keeps_its_line_too() -> None:
    """Two lists of long texts stand in it."""
    line = _lined(queued=1, turn_s=3.0, slot_wait_s=25.0)
    assert _order(facts(), _policy(shared_line_ratio=0.5), line, _slow_cloud()) == ["cloud", "edge"]


def test_where_all_of_the_line_is_shared_nothing_is_kept() -> None:
    """However much output the caller allows: answers there are short."""
    asked = facts(max_tokens=2_000)
    line = _lined(queued=3, answer_tokens=5.0)
    assert _order(asked, _policy(shared_line_ratio=1.0), line, _slow_cloud(ttft_ms=900_000.0)) == ["edge", "cloud"]


def test_without_a_limit_nothing_is_kept() -> None:
    rules = _policy(shared_line_ratio=0.0, stream_wait_ms=None)
    assert _order(facts(), rules, _lined(turn_s=10.0), _slow_cloud(ttft_ms=10.0**9)) == ["edge", "cloud"]


@pytest.mark.parametrize("told", [{"turn_s": 1e306}, {"slot_wait_s": 1e306}])
def test_a_line_without_end_is_refused_in_words(told: dict[str, float]) -> None:
    assert _both(PERSONAL, _policy(), _lined(**told)).retry_after_s == 300


def test_columns_list_only_what_may_serve_however_long_it_takes() -> None:
    """Predictions without end are no reason to name a backend that privacy or the model ruled out."""
    agents = [
        backend(f"e{at:03d}", slots_total=None, slots_busy=1, queued=1, turn_s=1e306, models=(served(model=model),))
        for at, model in enumerate([MODEL, "other"] * 100)
    ]
    clouds = [backend(f"c{at:03d}", Zone.CLOUD, slots_busy=5, turn_s=1e306) for at in range(100)]
    decision = _both(PERSONAL, _policy(), *agents, *clouds)
    assert {candidate.backend_id for candidate in decision.candidates} == {f"e{at:03d}" for at in range(0, 200, 2)}


def test_an_agent_within_the_objective_keeps_its_place() -> None:
    fast = _lined(queued=0, turn_s=1.0)
    assert _order(facts(), _policy(shared_line_ratio=0.0), fast, _slow_cloud(ttft_ms=5.0)) == ["edge", "cloud"]


def test_a_line_that_is_not_measured_is_not_kept() -> None:
    unmeasured = _lined(queued=20, decode_tokens_per_s=None, ttft_ms=20_000.0)
    assert _order(facts(), _policy(shared_line_ratio=0.0), unmeasured, _slow_cloud(ttft_ms=10**9)) == ["edge", "cloud"]


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
