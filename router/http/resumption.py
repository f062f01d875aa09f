"""Goes on with a stream that broke after content, on another backend with the same weights, where privacy allows it.

Off unless a rule turns it on. The prompt with the text so far is a new body: it is scanned, decided and permitted like
any other, so that what the answer itself brought in cannot leave by this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self

import orjson

from router.audit.account import Account
from router.audit.log import AuditLog
from router.dispatch.dispatcher import Dispatcher, Refused
from router.dispatch.exchange import Exchange, Send
from router.dispatch.job import Job
from router.dispatch.transcript import Continuation, Transcript, can_continue, is_greedy
from router.http.headers import Asked
from router.http.judge import Classified, Judge, Judged
from router.policy.model import Candidate
from router.privacy.permit import body_digest, mint
from router.privacy.placeholders import Placeholders
from shared.errors import BackendTimeout, IsthmusError, StreamBroken
from shared.fleet import FleetSnapshot, ServedModel, Zone, prompt_bucket
from shared.keys import ApiKey
from shared.openai.facts import Endpoint
from shared.privacy import PrivacyClass, strictest

RESUME_HEADER = "x-isthmus-resume"
DETERMINISTIC = "deterministic"
"""The feature by which a backend says that greedy decoding there depends on the text alone."""
MAX_RESUMES = 3
Label = Literal["exact", "best_effort"]


class Asking(NamedTuple):
    """One request as it was accepted: what deciding it again takes."""

    body: dict[str, Any]
    asked: Asked
    key: ApiKey | None
    pin: PrivacyClass
    judged: Judged


class Resumption:
    """What is kept of one stream, and the way on."""

    def __init__(
        self, judge: Judge, dispatcher: Dispatcher, audit: AuditLog, account: Account, asking: Asking, job: Job
    ) -> None:
        self._judge = judge
        self._dispatcher = dispatcher
        self._audit = audit
        self._account = account
        self._asking = asking
        self._failed: set[str] = set()
        self._label: Label | None = None
        self._transcript = Transcript()
        self.job = replace(job, watch=self._transcript)
        """The job as the first backend gets it."""

    @classmethod
    def of(
        cls, judge: Judge, dispatcher: Dispatcher, audit: AuditLog, account: Account, asking: Asking, job: Job
    ) -> Self | None:
        """None where no rule asks for it, or the answer is of a kind that no other backend can go on with."""
        endpoint = asking.judged.facts.request.endpoint
        if not asking.judged.decision.resume or job.filters or not can_continue(endpoint, asking.body):
            return None
        return cls(judge, dispatcher, audit, account, asking, job)

    def headers(self, candidate: Candidate) -> dict[str, str]:
        """What the client is told ahead: whether a stream that is gone on with would be the same, token by token."""
        served = self._served(self._asking.judged.fleet, candidate.backend_id)
        if served is None or served.digest is None:
            return {}
        exact = is_greedy(self._asking.body) and DETERMINISTIC in served.features
        self._label = "exact" if exact else "best_effort"
        return {RESUME_HEADER: self._label}

    async def relay(self, exchange: Exchange, send: Send, finish: Send, opened: Callable[[Exchange], None]) -> None:
        """Relay `exchange`, and what goes on after it; `opened` is told each further one, which the caller closes.

        Raises:
            StreamBroken, BackendTimeout: as the exchange that could not be gone on with.
        """
        while True:
            try:
                return await exchange.relay(send, finish)
            except (StreamBroken, BackendTimeout) as error:
                exchange.close()
                self._failed.add(exchange.candidate.backend_id)
                next_exchange = await self._next(exchange.candidate)
                if next_exchange is None:
                    raise error from None
                exchange = next_exchange
                opened(exchange)
                note = f": resumed on {exchange.candidate.backend_id}, {self._label}\n\n"
                await send(note.encode())

    async def _next(self, broken: Candidate) -> Exchange | None:
        body = self._transcript.continuation(self._asking.body)
        if body is None or self._label is None or self._account.resumed >= MAX_RESUMES:
            return None
        try:
            again = await self._again(body, broken)
            if again is None:
                return None
            exchange = await self._dispatcher.open(again, self._account.attempts, is_retry=True)
        except (IsthmusError, Refused):
            return None
        self._account.resumed += 1
        return exchange

    async def _again(self, body: dict[str, Any], broken: Candidate) -> Job | None:
        """The continuation as a job for the backends that may and can take it; None where there is none."""
        asking = self._asking
        named = {**body, "model": asking.judged.facts.request.model}
        raw = orjson.dumps(named)
        found = await self._judge.classify(named, raw, self.job.span)
        effective = self._judge.effective(found, asking.asked, asking.key, pin=asking.pin)
        effective = strictest(effective, asking.judged.decision.privacy_class)
        request = Classified(Endpoint.CHAT, named, asking.asked, asking.key, found, effective)
        judged = await self._judge.decide(request, Placeholders(), self.job.span)
        decision = judged.decision
        candidates = tuple(c for c in decision.candidates if self._suits(c, broken, judged.fleet))
        if judged.masked or not decision.resume or not candidates or not self._audit.can_record(effective):
            return None
        decision = decision._replace(candidates=candidates)
        to_cloud = any(c.zone is Zone.CLOUD for c in candidates)
        permit = mint(decision, found, body_digest(raw), self.job.decision_id) if to_cloud else None
        return replace(
            self.job,
            body=raw,
            decision=decision,
            permit=permit,
            prompt_bucket=prompt_bucket(judged.facts.request.prompt_tokens_estimate),
            masked=None,
            watch=Continuation(self._transcript),
        )

    def _suits(self, candidate: Candidate, broken: Candidate, fleet: FleetSnapshot) -> bool:
        """Whether it has not failed here, has the same weights, and keeps what the client was told."""
        served, before = self._served(fleet, candidate.backend_id), self._served(fleet, broken.backend_id)
        before = before or self._served(self._asking.judged.fleet, broken.backend_id)
        if candidate.backend_id in self._failed or served is None or before is None:
            return False
        if before.digest is None or served.digest != before.digest:
            return False
        return self._label != "exact" or DETERMINISTIC in served.features

    def _served(self, fleet: FleetSnapshot, backend_id: str) -> ServedModel | None:
        model = self._asking.judged.facts.request.model
        return next((b.model(model) for b in fleet.backends if b.backend_id == backend_id), None)
