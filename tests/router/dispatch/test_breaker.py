"""The breaker, the ledger, the retry budget and the rests: pure machines over passed-in time."""

from __future__ import annotations

import pytest

from router.dispatch.budget import RetryBudget, RetryRules
from router.dispatch.cooldown import MAX_COOL_MS, Cooldowns, retry_after_ms
from router.dispatch.health import Health
from router.dispatch.ledger import Ledger, Ledgers, OutlierRules
from router.dispatch.targets import Access, Targets
from router.dispatch.verdict import MEANINGS, Outcome, outcome_of_status
from shared.breaker import BreakerRules, CircuitBreaker
from shared.fleet import Breaker

RULES = BreakerRules(failures=3, open_ms=1000, max_open_ms=4000)


def test_failures_in_a_row_open_it_and_one_success_closes_it() -> None:
    breaker = CircuitBreaker(RULES)
    for _ in range(2):
        assert breaker.admit(0)
        breaker.failed(0)
    assert breaker.admit(0)
    breaker.succeeded()
    for _ in range(3):
        assert breaker.state(0) is Breaker.CLOSED
        breaker.failed(0)
    assert breaker.state(999) is Breaker.OPEN and not breaker.admit(999)
    assert breaker.reopens_in_ms(400) == 600
    assert breaker.state(1000) is Breaker.HALF_OPEN
    assert breaker.admit(1000) and not breaker.admit(1000), "one probe at a time"
    breaker.succeeded()
    assert breaker.state(1000) is Breaker.CLOSED


def test_failed_probes_wait_longer_up_to_a_cap() -> None:
    breaker, now_ms, waits = CircuitBreaker(RULES), 0, []
    breaker.trip(now_ms)
    for _ in range(4):
        now_ms += breaker.reopens_in_ms(now_ms)
        assert breaker.admit(now_ms)
        breaker.failed(now_ms)
        waits.append(breaker.reopens_in_ms(now_ms))
    assert waits == [2000, 4000, 4000, 4000]


def test_an_abandoned_probe_frees_its_place() -> None:
    breaker = CircuitBreaker(RULES)
    breaker.trip(0)
    assert breaker.admit(1000)
    breaker.abandoned()
    assert breaker.admit(1000)


def test_a_late_failure_does_not_prolong_what_is_open() -> None:
    breaker = CircuitBreaker(RULES)
    for _ in range(3):
        breaker.failed(0)
    breaker.failed(500)
    assert breaker.reopens_in_ms(500) == 500


@pytest.mark.parametrize("outcome", Outcome)
def test_each_outcome_has_its_meaning_and_gives_its_slot_back(outcome: Outcome) -> None:
    """FO-05: only faults of the backend count against it."""
    ledger = Ledger(RULES)
    for _ in range(5):
        if ledger.enter(0):
            ledger.leave(outcome, 0)
    assert ledger.in_flight == 0
    counted = MEANINGS[outcome].effect in ("count", "trip")
    assert (ledger.breaker(0) is Breaker.OPEN) == counted


def test_a_long_line_is_no_fault_while_other_streams_get_on() -> None:
    """FO-05 kind: requests that wait behind others run out of time; those that are served go on."""
    ledger = Ledger(RULES)
    assert ledger.enter(0)
    ledger.began_reading(0)
    for now_ms in range(30_000, 60_000, 1_000):
        ledger.moved(now_ms)
        assert ledger.enter(now_ms)
        ledger.leave(Outcome.FIRST_TOKEN_TIMEOUT, now_ms)
    assert ledger.breaker(60_000) is Breaker.CLOSED
    ledger.ended_reading()
    for _ in range(RULES.failures):
        assert ledger.enter(75_000)
        ledger.leave(Outcome.FIRST_TOKEN_TIMEOUT, 75_000)
    assert ledger.breaker(75_000) is Breaker.OPEN, "nothing has moved for longer than a frozen backend is waited for"


def test_statuses_mean_what_the_rules_say() -> None:
    assert outcome_of_status(408, code=None, has_retry_after=False) is Outcome.BUSY
    assert outcome_of_status(429, code=None, has_retry_after=False) is Outcome.RATE_LIMITED
    assert outcome_of_status(503, code=None, has_retry_after=True) is Outcome.BUSY
    assert outcome_of_status(503, code=None, has_retry_after=False) is Outcome.FAILED
    assert outcome_of_status(529, code=None, has_retry_after=False) is Outcome.BUSY
    assert outcome_of_status(204, code=None, has_retry_after=False) is Outcome.FAILED
    for status in (400, 401, 403, 404, 409, 413, 422, 451):
        assert outcome_of_status(status, code="x", has_retry_after=False) is Outcome.REFUSED_REQUEST


def test_a_new_instance_has_a_ledger_of_its_own() -> None:
    """FS-01."""
    ledgers = Ledgers(RULES)
    old = ledgers.of("pi", "first")
    old.enter(0)
    old.leave(Outcome.UNREACHABLE, 0)
    assert ledgers.of("pi") is old
    assert ledgers.of("pi", "second").breaker(0) is Breaker.CLOSED
    ledgers.keep_only(())
    assert list(ledgers) == []


def test_observations_are_kept_by_prompt_size() -> None:
    ledger = Ledger(RULES)
    ledger.observe_first_token(100, 0)
    ledger.observe_first_token(200, 0)
    ledger.observe_first_token(1000, 2)
    assert ledger.ttft_ms_by_prompt == (pytest.approx(120), None, 1000, None)
    ledger.observe_decode(0, 10)
    assert ledger.decode_tokens_per_s is None
    ledger.observe_decode(50, 1000)
    assert ledger.decode_tokens_per_s == 50


def test_retries_are_a_share_of_first_attempts() -> None:
    budget = RetryBudget(RetryRules(ratio=0.1, floor_per_10s=2))
    assert [budget.retry(0) for _ in range(3)] == [True, True, False]
    for _ in range(100):
        budget.first(500)
    assert sum(budget.retry(500) for _ in range(50)) == 8
    assert not budget.can_retry(9_999)
    assert budget.can_retry(20_000), "the window has passed"
    assert sum(budget.retry(10**9) for _ in range(50)) == 2


def test_waits_are_jittered_and_capped() -> None:
    rules = RetryRules(backoff_base_ms=10, backoff_cap_ms=200)
    assert rules.wait_s(0, 0.5) == pytest.approx(0.005)
    assert rules.wait_s(30, 0.999) < 0.2
    assert rules.wait_s(3, 0.0) == 0.0


def test_a_domain_rests_together_and_the_longer_rest_wins() -> None:
    """FO-03."""
    health = Health(
        Ledgers(RULES), Targets({"a": Access(rate_domain="acme"), "b": Access(rate_domain="acme")}, edge=Access())
    )
    health.rest_domain_of("a", for_ms=3000, now_ms=0)
    health.rest_domain_of("b", for_ms=1000, now_ms=0)
    assert health.rests_until_ms("b", 0) == 3000
    assert health.rests_until_ms("c", 0) is None
    health.rest("b", for_ms=5000, now_ms=0)
    assert health.rests_until_ms("b", 4000) == 5000 and health.limited_until_ms("b", 4000) is None
    assert health.rests_until_ms("a", 3000) is None


def test_a_mistaken_header_does_not_retire_a_backend() -> None:
    cooldowns = Cooldowns()
    cooldowns.cool("x", for_ms=10**12, now_ms=0)
    assert cooldowns.until_ms("x", 0) == MAX_COOL_MS


@pytest.mark.parametrize(
    "header,expected",
    [("7", 7000), (" 7 ", 7000), ("0", 0), (None, None), ("", None), ("-1", None), ("soon", None), ("٣", None),
     ("0.4", 400), ("1.0005", 1001), ("1.", None), ("1e3", None), ("9" * 400, MAX_COOL_MS),
     ("9" * 40, MAX_COOL_MS), ("Tue, 14 Nov 2023 22:13:30 GMT", 10_000), ("Tue, 14 Nov 2022 22:13:30 GMT", 0)],
)  # fmt: skip
def test_fo_03_retry_after_in_all_forms(header: str | None, expected: int | None) -> None:
    assert retry_after_ms(header, unix_s=1_700_000_000.0) == expected


def _tried(ledger: Ledger, outcome: Outcome, now_ms: int) -> None:
    if ledger.enter(now_ms):
        ledger.leave(outcome, now_ms)


def test_every_other_failure_opens_the_breaker_too() -> None:
    """An outlier never fails three times in a row, and is still no backend to send to."""
    ledger = Ledger(RULES, OutlierRules(failure_ratio=0.5, least_attempts=10))
    for n in range(9):
        _tried(ledger, Outcome.OK if n % 2 else Outcome.FAILED, n)
    assert ledger.breaker(9) is Breaker.CLOSED
    _tried(ledger, Outcome.FAILED, 10)
    assert ledger.breaker(10) is Breaker.OPEN


def test_failures_that_are_long_past_or_the_requests_own_do_not_count() -> None:
    ledger = Ledger(RULES, OutlierRules(failure_ratio=0.5, least_attempts=4))
    for n in range(3):
        _tried(ledger, Outcome.FAILED if n % 2 == 0 else Outcome.OK, n)
    for n in range(20):
        _tried(ledger, Outcome.RATE_LIMITED, 20_000 + n)
        _tried(ledger, Outcome.REFUSED_REQUEST, 20_000 + n)
    _tried(ledger, Outcome.FAILED, 20_100)
    assert ledger.breaker(20_100) is Breaker.CLOSED


def test_a_backend_whose_streams_all_stand_still_gets_no_more() -> None:
    ledger = Ledger(RULES, OutlierRules(frozen_after_ms=1_000))
    ledger.began_reading(0)
    ledger.began_reading(500)
    ledger.moved(900)
    assert not ledger.is_frozen(1_900) and ledger.enter(1_900)
    assert ledger.is_frozen(1_901) and ledger.breaker(1_901) is Breaker.OPEN and not ledger.enter(1_901)
    ledger.moved(2_000)
    assert ledger.breaker(2_000) is Breaker.CLOSED
    ledger.ended_reading()
    ledger.ended_reading()
    assert not ledger.is_frozen(99_000), "nobody waits: nothing is known against it"
