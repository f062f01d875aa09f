"""Tries the candidates of a decision in order until one has content to give; after that there is no way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from router.audit.account import Attempt, AttemptKind
from router.dispatch import spans
from router.dispatch.budget import RetryBudget, RetryRules
from router.dispatch.clients import BackendClient
from router.dispatch.cooldown import DEFAULT_COOL_MS, retry_after_ms
from router.dispatch.exchange import AttemptFailed, Exchange, ExchangeLimits
from router.dispatch.health import Health
from router.dispatch.hedge import Race
from router.dispatch.job import Job
from router.dispatch.ledger import Ledger
from router.dispatch.refusal import Refusal
from router.dispatch.verdict import MEANINGS, Outcome
from router.policy.model import Candidate, Rejection
from shared.clock import Clock
from shared.errors import IsthmusError, NoCapacity, PrivacyUnavailable, RateLimited
from shared.fleet import Zone
from shared.openai.envelope import retry_headers

_TOO_MUCH = frozenset({Outcome.CONTEXT_EXCEEDED, Outcome.UNSUPPORTED})
"""The request asks for more than one backend has: no failure of it, so that trying another is no retry."""
_NOT_PRIVACY = _TOO_MUCH | {Outcome.REFUSED_REQUEST}
"""Outcomes that are the request's own fault, whatever zones were left."""
_PASSED_ON = _NOT_PRIVACY | {Outcome.MODEL_GONE, Outcome.RATE_LIMITED, Outcome.BUSY}
"""Outcomes whose refusal is itself the best answer for the client."""
_BUSY_COOL_MS = 250
"""Longest pause for a busy backend: a slot may come free at any moment, and must not stay empty for long."""


class Refused(Exception):
    """A backend's own refusal goes to the client. `retry_headers` say whether and when to ask again."""

    def __init__(self, refusal: Refusal, retry_after_s: int | None) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal
        self.retry_headers = retry_headers(retry_after_s, is_final=refusal.is_final)


class Dispatcher:
    """Opens one exchange for each job."""

    def __init__(
        self,
        clients: Mapping[Literal["edge", "cloud"], BackendClient],
        health: Health,
        *,
        limits: ExchangeLimits,
        retry: RetryRules,
        clock: Clock,
        fraction: Callable[[], float],
    ) -> None:
        self._clients = clients
        self._health = health
        self._limits = limits
        self._rules = retry
        self._budget = RetryBudget(retry)
        self._clock = clock
        self._fraction = fraction

    async def open(self, job: Job, attempts: list[Attempt], *, is_retry: bool = False) -> Exchange:
        """An exchange with content ready, which the caller closes; each attempt is appended to `attempts`, the one that
        answers last. `is_retry`: already the first attempt is one of the retry budget.

        Raises:
            Refused: a backend's refusal is the answer.
            IsthmusError: no candidate could serve.
        """
        last: AttemptFailed | None = None
        refused: dict[str, AttemptFailed] = {}
        if is_retry and not await self._retry(attempts):
            raise NoCapacity("The retry budget of this router is spent.")
        for candidate in job.decision.candidates:
            if last is not None and not MEANINGS[last.outcome].fails_over:
                break
            now_ms = self._clock.now_ms()
            if not self._can_try(job, candidate, refused, now_ms):
                continue
            if last is not None and last.outcome not in _TOO_MUCH:
                if not await self._retry(attempts):
                    break
                now_ms = self._clock.now_ms()
            ledger = self._entered(candidate, now_ms)
            if ledger is None:
                continue
            if last is None and not is_retry:
                self._budget.first(now_ms)
            if last is None and job.stream and job.decision.hedge_ms is not None:
                ended = await self._hedged(job, candidate, ledger, attempts, refused)
                if isinstance(ended, Exchange):
                    return ended
                last = ended
                continue
            try:
                kind = AttemptKind.RETRY if last else AttemptKind.RESUME if is_retry else AttemptKind.FIRST
                exchange = self._begun(job, candidate, ledger, attempts, kind)
                await exchange.open(self._clients[exchange.tier], self._health.targets.access(candidate))
                return exchange
            except AttemptFailed as failure:
                last = self._failed(candidate, failure, refused)
        raise self._answer_for(job, last)

    async def _hedged(
        self,
        job: Job,
        candidate: Candidate,
        ledger: Ledger,
        attempts: list[Attempt],
        refused: dict[str, AttemptFailed],
    ) -> Exchange | AttemptFailed:
        """The first of two to give content, or the last failure. The second is asked only once the first has been
        silent for a while."""
        race = Race()
        try:
            exchange = self._begun(job, candidate, ledger, attempts, AttemptKind.FIRST)
            race.enter(exchange, self._opened(exchange))
            if not await race.settled((job.decision.hedge_ms or 0) / 1000):
                self._enter_second(race, job, candidate, attempts, refused)
            return await race.won(attempts, lambda loser, failure: self._failed(loser, failure, refused))
        finally:
            race.close()

    def _enter_second(
        self,
        race: Race,
        job: Job,
        first: Candidate,
        attempts: list[Attempt],
        refused: Mapping[str, AttemptFailed],
    ) -> None:
        """Send the next candidate into the race, if one can start and the retry budget has room for it."""
        for candidate in job.decision.candidates:
            now_ms = self._clock.now_ms()
            if candidate.backend_id == first.backend_id or not self._can_try(job, candidate, refused, now_ms):
                continue
            if not self._budget.can_retry(now_ms):
                return
            ledger = self._entered(candidate, now_ms)
            if ledger is not None:
                self._budget.retry(now_ms)
                exchange = self._begun(job, candidate, ledger, attempts, AttemptKind.HEDGE)
                race.enter(exchange, self._opened(exchange))
                return

    def _entered(self, candidate: Candidate, now_ms: int) -> Ledger | None:
        """The backend's ledger with one more attempt counted; None where it may not start."""
        ledger = self._health.ledgers.of(candidate.backend_id)
        limit = self._health.targets.access(candidate).in_flight_limit
        if limit is not None and ledger.in_flight >= limit:
            return None
        return ledger if ledger.enter(now_ms) else None

    def _failed(self, candidate: Candidate, failure: AttemptFailed, refused: dict[str, AttemptFailed]) -> AttemptFailed:
        refused[candidate.backend_id] = failure
        self._learn(candidate, failure)
        return failure

    def _begun(
        self, job: Job, candidate: Candidate, ledger: Ledger, attempts: list[Attempt], kind: AttemptKind
    ) -> Exchange:
        """An attempt that is counted and not sent yet."""
        attempt = Attempt(candidate.backend_id, candidate.zone.tier, kind=kind)
        attempts.append(attempt)
        span = spans.begun(job, candidate, attempt, len(attempts))
        return Exchange(job, candidate, ledger, attempt, self._limits, self._clock, span)

    async def _opened(self, exchange: Exchange) -> Exchange:
        """Send it and wait for content."""
        await exchange.open(self._clients[exchange.tier], self._health.targets.access(exchange.candidate))
        return exchange

    def _can_try(self, job: Job, candidate: Candidate, refused: Mapping[str, AttemptFailed], now_ms: int) -> bool:
        """Whether the candidate has not failed on this job, does not rest, has more room than any that found the
        request too long, and is no agent where one said that agents do not support it."""
        if self._health.rests_until_ms(candidate.backend_id, now_ms) is not None:
            return False
        if not refused:
            return True
        if candidate.backend_id in refused:
            return False
        if candidate.zone is not Zone.CLOUD and any(f.outcome is Outcome.UNSUPPORTED for f in refused.values()):
            return False
        too_small = [b for b, failure in refused.items() if failure.outcome is Outcome.CONTEXT_EXCEEDED]
        room = job.context_of(candidate.backend_id)
        return all(room is not None and room > (job.context_of(b) or 0) for b in too_small)

    async def _retry(self, attempts: list[Attempt]) -> bool:
        """Spend one retry of the budget and wait its jittered pause; False when the budget is spent."""
        if not self._budget.retry(self._clock.now_ms()):
            return False
        await self._clock.sleep(self._rules.wait_s(len(attempts) - 1, self._fraction()))
        return True

    def _learn(self, candidate: Candidate, failure: AttemptFailed) -> None:
        """Rest what asked for a pause: a whole rate domain after 429, one backend for a moment when it is busy."""
        now_ms = self._clock.now_ms()
        asked_ms = self._asked_ms(failure)
        if failure.outcome is Outcome.RATE_LIMITED:
            self._health.rest_domain_of(candidate.backend_id, for_ms=asked_ms or DEFAULT_COOL_MS, now_ms=now_ms)
        elif failure.outcome is Outcome.BUSY and asked_ms is not None:
            self._health.rest(candidate.backend_id, for_ms=min(asked_ms, _BUSY_COOL_MS), now_ms=now_ms)

    def _asked_ms(self, failure: AttemptFailed) -> int | None:
        header = failure.refusal.retry_after if failure.refusal else None
        return retry_after_ms(header, unix_s=self._clock.unix_s())

    def _answer_for(self, job: Job, last: AttemptFailed | None) -> Exception:
        """What the client gets when no candidate served."""
        waits_ms = self._waits_ms(job)
        retry_after_s = max(1, -(-min(waits_ms) // 1000)) if waits_ms else 1
        at_fault = last is not None and last.outcome in _NOT_PRIVACY
        if not at_fault and Rejection.PRIVACY in job.decision.rejected_counts:
            return PrivacyUnavailable(
                "This content must stay on the edge, and no edge backend could serve it.", retry_after_s=retry_after_s
            )
        if last is None:
            return _no_room(all_rest=len(waits_ms) == len(job.decision.candidates), retry_after_s=retry_after_s)
        if last.refusal is not None and last.outcome in _PASSED_ON:
            asked_ms = self._asked_ms(last)
            if asked_ms is not None:
                return Refused(last.refusal, max(1, -(-asked_ms // 1000)))
            return Refused(last.refusal, retry_after_s if last.outcome is Outcome.RATE_LIMITED else None)
        return last.error

    def _waits_ms(self, job: Job) -> list[int]:
        """Remaining pauses of the candidates that rest."""
        now_ms = self._clock.now_ms()
        untils = [self._health.rests_until_ms(c.backend_id, now_ms) for c in job.decision.candidates]
        return [until - now_ms for until in untils if until is not None]


def _no_room(*, all_rest: bool, retry_after_s: int) -> IsthmusError:
    if all_rest:
        return RateLimited("The backends that may serve this ask for a pause.", retry_after_s=retry_after_s)
    return NoCapacity("No eligible backend could take this request.", retry_after_s=retry_after_s)
