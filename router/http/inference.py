"""Serves one request of the OpenAI surface: accept, classify, decide, dispatch, account."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from aiohttp import web

from router.audit.account import Account
from router.audit.evidence import Evidence
from router.audit.log import AuditLog
from router.dispatch.dispatcher import Dispatcher, Refused
from router.dispatch.exchange import Exchange
from router.dispatch.health import Health
from router.dispatch.job import Job
from router.dispatch.rewrite import capped_fields, with_fields, with_model
from router.fleet.directory import FleetDirectory
from router.fleet.traffic import Traffic
from router.http import spans
from router.http.access import COUNTED, Doorkeeper
from router.http.headers import Asked, answer_headers, forwarded, read_asked
from router.http.judge import Classified, Judge, Judged, permit_of
from router.http.outlet import ClientStream
from router.http.quota import Quota
from router.http.resumption import Asking, Resumption
from router.http.tally import Tally
from router.policy.model import Decision, Mode, Reason, Rejection, Route
from router.policy.refusal import refusal
from router.privacy.answers import NewFilter
from router.privacy.model import Classification
from router.privacy.returning import Answers
from router.privacy.sessions import Sessions
from shared.clock import Clock
from shared.errors import (
    BackendError,
    Draining,
    IsthmusError,
    NoCapacity,
    PolicyBlocked,
    QueueFull,
    RateLimited,
)
from shared.fleet import prompt_bucket
from shared.http.direct import DirectResponse
from shared.http.errors import REQUEST_ID, error_response
from shared.http.intake import read_object
from shared.http.lifecycle import Lifecycle
from shared.http.tracing import span_of
from shared.identifiers import Identifiers
from shared.keys import ApiKey, Scope
from shared.openai.facts import REWRITABLE, Endpoint
from shared.openai.validation import validate
from shared.privacy import Action, PrivacyClass, is_stricter, strictest
from shared.telemetry import RouterMetrics

_NO_PERMISSION = frozenset({Rejection.PRIVACY, Rejection.RULE, Rejection.ROUTE_OVERRIDE, Rejection.MODE})
_FREE_MODES = frozenset({Mode.PREFER_EDGE, Mode.PREFER_CLOUD, Mode.FASTEST})
_OUTCOMES = {200: "ok", 429: "capacity", 503: "capacity", 502: "backend_error", 504: "backend_error", 500: "error"}
_ENDPOINTS = {endpoint.value: endpoint for endpoint in Endpoint}
_JSON = {"Content-Type": "application/json"}
OK = "ok"
CLIENT_LEFT = "client_left"
BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class InferenceParts:
    """What serving needs; `session_key` keys the digests of session ids."""

    lifecycle: Lifecycle
    doorkeeper: Doorkeeper
    quota: Quota
    judge: Judge
    dispatcher: Dispatcher
    directory: FleetDirectory
    health: Health
    traffic: Traffic
    audit: AuditLog
    metrics: RouterMetrics
    clock: Clock
    sessions: Sessions
    answers: Answers
    session_key: bytes
    body_limit_bytes: int
    in_flight_limit: int
    keepalive_s: float


class Inference:
    """Handler of the routes that carry a prompt."""

    def __init__(self, parts: InferenceParts, tally: Tally) -> None:
        self._parts = parts
        self._tally = tally
        self._ids = Identifiers()
        self._running: set[asyncio.Task[Any]] = set()

    async def expire(self) -> None:
        """Wait for the drain limit, then end what still runs with an error."""
        await self._parts.lifecycle.expired.wait()
        for task in self._running:
            task.cancel()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        account = self._opened(request)
        task = asyncio.current_task()
        self._tally.began()
        try:
            with parts.lifecycle.request():
                if task is not None:
                    self._running.add(task)
                return await self._served(request, account)
        except IsthmusError as error:
            return self._refused(account, error)
        except Refused as refused:
            return self._passed_on(account, refused)
        except asyncio.CancelledError:
            if self._is_expired():
                return self._refused(account, _shutting_down())
            self._left(account)
            raise
        except ConnectionResetError:
            self._left(account)
            raise
        except Exception:
            account.status, account.code = IsthmusError.status, IsthmusError.default_code
            raise
        finally:
            if task is not None:
                self._running.discard(task)
            self._close(account, recorded=COUNTED not in request)

    def _opened(self, request: web.Request) -> Account:
        parts = self._parts
        return Account(
            decision_id=f"dec-{self._ids.new()}",
            request_id=request[REQUEST_ID],
            endpoint=request.path,
            began_unix_s=parts.clock.unix_s(),
            began_ms=parts.clock.now_ms(),
            span=span_of(request),
        )

    async def _served(self, request: web.Request, account: Account) -> web.StreamResponse:
        parts = self._parts
        if parts.lifecycle.in_flight > parts.in_flight_limit:
            raise QueueFull("The router serves as many requests as it may.")
        key = parts.doorkeeper.admit(request, Scope.INFERENCE)
        account.key_name = key.name if key else None
        asked = read_asked(request, account.span)
        raw, body = await read_object(request, limit_bytes=parts.body_limit_bytes)
        account.body_bytes, account.body_digest = len(raw), parts.audit.digest(raw)
        endpoint = _ENDPOINTS[request.path]
        validate(endpoint, body)
        account.stream, account.asked_class = body.get("stream") is True, asked.privacy
        if key is None or not key.limits.any:
            return await self._answered(request, account, endpoint, key, asked, raw, body)
        async with parts.quota.admitted(key, endpoint, body, account):
            return await self._answered(request, account, endpoint, key, asked, raw, body)

    async def _answered(
        self,
        request: web.Request,
        account: Account,
        endpoint: Endpoint,
        key: ApiKey | None,
        asked: Asked,
        raw: bytes,
        body: dict[str, Any],
    ) -> web.StreamResponse:
        parts = self._parts
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        account.classification = found = await parts.judge.classify(body, raw, account.span)
        account.classify_ms = round((loop.time() - started_s) * 1000, 3)
        account.privacy_class = found.privacy_class
        session = parts.sessions.of(asked.session, account.key_name)
        if session.name is not None:
            asked_class = asked.privacy or PrivacyClass.PUBLIC
            await parts.sessions.settle_pin(session, strictest(found.privacy_class, asked_class))
        account.pinned_class = session.pin
        effective = parts.judge.effective(found, asked, key, pin=session.pin)
        session.tighten(strictest(found.privacy_class, effective))
        account.privacy_class = effective
        account.loosened = is_stricter(strictest(found.privacy_class, account.pinned_class), effective)
        classified = Classified(endpoint, body, asked, key, found, effective)
        judged = await parts.judge.decide(classified, session.source, account.span)
        self._note(account, judged)
        self._check(judged)
        job = self._job(account, asked, found, judged, raw, body)
        if not job.stream:
            return await self._whole(account, job)
        return await self._stream(request, account, job, Asking(body, asked, key, session.pin, judged))

    def _note(self, account: Account, judged: Judged) -> None:
        decision = account.decision = judged.decision
        account.evidence = Evidence(judged.facts, judged.fleet, judged.now_ms)
        account.prompt_tokens_estimate = judged.facts.request.prompt_tokens_estimate
        model = judged.facts.request.model
        # A name that no backend serves is the caller's own text and stays out of the log.
        account.model = model if judged.is_served(model) else None
        self._tally.decided(decision)

    def _check(self, judged: Judged) -> None:
        """Refuse what cannot or must not be dispatched."""
        decision = judged.decision
        if not decision.candidates:
            limited_s = self._rate_limited_s(decision)
            if decision.reason is Reason.NO_CAPACITY and limited_s is not None:
                raise RateLimited("The backends that may serve this ask for a pause.", retry_after_s=limited_s)
            raise refusal(decision, judged.facts)
        if not self._parts.audit.can_record(decision.privacy_class):
            raise NoCapacity(
                "The audit log cannot be written, and this content is not served without it.",
                code="audit_unavailable",
                retry_after_s=5,
            )

    def _rate_limited_s(self, decision: Decision) -> int | None:
        """Seconds until a quota is free, when a quota is all that stands in the way."""
        able = [r for r in decision.rejected if r.reason not in _NO_PERMISSION]
        now_ms = self._parts.clock.now_ms()
        untils = [self._parts.health.limited_until_ms(r.backend_id, now_ms) for r in able]
        waits = [until - now_ms for until in untils if until is not None]
        return max(1, -(-min(waits) // 1000)) if waits and len(waits) == len(able) else None

    def _job(
        self,
        account: Account,
        asked: Asked,
        found: Classification,
        judged: Judged,
        raw: bytes,
        body: dict[str, Any],
    ) -> Job:
        model = judged.facts.request.model
        travels = raw if model == body["model"] else with_model(raw, model)
        capped = capped_fields(judged.facts.request.endpoint, body, judged.decision.rule_cap_tokens)
        travels = with_fields(travels, capped)
        return Job(
            path=account.endpoint,
            model=model,
            body=travels,
            stream=account.stream is True,
            decision=judged.decision,
            decision_id=account.decision_id,
            request_id=account.request_id,
            prompt_bucket=prompt_bucket(judged.facts.request.prompt_tokens_estimate),
            permit=permit_of(judged, found, travels, account.decision_id),
            context_of=partial(judged.fleet.context_of, model),
            forwarded=forwarded(asked, self._parts.session_key),
            masked=judged.masked.raw if judged.masked else None,
            filters=self._filters(judged),
            span=account.span,
            carried=asked.carried,
        )

    def _filters(self, judged: Judged) -> Mapping[Literal["edge", "cloud"], NewFilter]:
        """How answers are rewritten, by tier."""
        endpoint = judged.facts.request.endpoint
        placeholders = judged.masked.placeholders if judged.masked else None
        filters = self._parts.answers.filters(placeholders, scan=judged.decision.scan_answers)
        if endpoint is Endpoint.EMBEDDINGS:
            return {}  # there is no text in such an answer
        if filters and endpoint not in REWRITABLE:
            message = "Answers are scanned here, and those of this API cannot be."
            raise PolicyBlocked(message, code="answers_unscannable")
        return filters

    async def _whole(self, account: Account, job: Job) -> web.StreamResponse:
        exchange = await self._parts.dispatcher.open(job, account.attempts)
        try:
            self._chosen(account, exchange)
            account.status, account.outcome = 200, OK
            headers = _JSON | answer_headers(account) | exchange.passed_headers()
            return DirectResponse(headers=headers, body=exchange.body)
        finally:
            exchange.close()

    async def _stream(self, request: web.Request, account: Account, job: Job, asking: Asking) -> web.StreamResponse:
        parts = self._parts
        exchanges: list[Exchange] = []
        resumption = Resumption.of(parts.judge, parts.dispatcher, parts.audit, account, asking, job)

        def headers() -> dict[str, str]:
            told = answer_headers(account)
            for exchange in exchanges[:1]:
                told |= exchange.passed_headers() | (resumption.headers(exchange.candidate) if resumption else {})
            return told

        async def finish(data: bytes) -> None:
            await outlet.finish(data)
            account.status, account.outcome = 200, OK

        outlet = ClientStream(request, headers=headers, keepalive_s=parts.keepalive_s)
        try:
            exchange = await parts.dispatcher.open(resumption.job if resumption else job, account.attempts)
            exchanges.append(exchange)
            self._chosen(account, exchange)
            if outlet.committed and len(account.attempts) > 1:
                # The headers named an earlier candidate: say in the stream who speaks.
                await outlet.send(b": backend %s\n\n" % exchange.candidate.backend_id.encode())
            if resumption is None:
                await exchange.relay(outlet.send, finish)
            else:
                await resumption.relay(exchange, outlet.send, finish, exchanges.append)
        except (IsthmusError, Refused, asyncio.CancelledError) as error:
            return await self._broken(account, outlet, error)
        finally:
            outlet.close()
            for exchange in exchanges:
                exchange.close()
        return outlet.response or web.Response()

    async def _broken(
        self, account: Account, outlet: ClientStream, error: IsthmusError | Refused | asyncio.CancelledError
    ) -> web.StreamResponse:
        """End a stream that failed: as an error answer while that is possible, else with one error event."""
        if isinstance(error, asyncio.CancelledError):
            if not self._is_expired():
                raise error
            error = _shutting_down()
        if not outlet.committed or outlet.response is None:
            raise error
        if isinstance(error, Refused):
            error = BackendError("The backend refused this request.", code=error.refusal.code)
        account.status, account.code, account.outcome = 200, error.code, BROKEN
        await outlet.fail(error)
        return outlet.response

    def _is_expired(self) -> bool:
        """Whether a cancellation came from the drain limit; it is then taken back, so that an answer can be sent."""
        task = asyncio.current_task()
        if task is None or not self._parts.lifecycle.expired.is_set():
            return False
        task.uncancel()
        return True

    def _left(self, account: Account) -> None:
        if account.outcome == OK:  # it had its whole answer
            return
        account.outcome = CLIENT_LEFT
        self._parts.metrics.cancelled.inc()

    def _chosen(self, account: Account, exchange: Exchange) -> None:
        candidate, decision = exchange.candidate, account.decision
        account.ttft_ms = exchange.attempt.ttft_ms
        self._tally.first_content(candidate, account.ttft_ms)
        if decision is not None and _is_free(decision):
            self._parts.directory.chosen(candidate.zone.tier)

    def _refused(self, account: Account, error: IsthmusError) -> web.Response:
        account.status, account.code = error.status, error.code
        account.outcome = _outcome(error.status)
        response = error_response(error, close=isinstance(error, Draining))
        response.headers.update(answer_headers(account))
        return response

    def _passed_on(self, account: Account, refused: Refused) -> web.Response:
        answer = refused.refusal
        account.status, account.code = answer.status, answer.code
        account.outcome = _outcome(answer.status)
        headers = answer_headers(account) | refused.retry_headers
        return web.Response(status=answer.status, body=answer.body, content_type="application/json", headers=headers)

    def _close(self, account: Account, *, recorded: bool) -> None:
        parts = self._parts
        now_ms = parts.clock.now_ms()
        self._tally.ended(account, unfinished=CLIENT_LEFT)
        if (decision := account.decision) is not None:
            tried = [attempt.backend_id for attempt in account.attempts]
            parts.traffic.note(tried, ((r.backend_id, r.reason) for r in decision.rejected), decision.reason, now_ms)
        if recorded:
            parts.audit.record(account.record(now_ms))
        spans.closed(account)


def _shutting_down() -> Draining:
    return Draining("The router is shutting down.")


def _outcome(status: int) -> str:
    return _OUTCOMES.get(status, "client_error")


def _is_free(decision: Decision) -> bool:
    """Whether policy had the choice between the tiers."""
    return (
        decision.route is Route.AUTO
        and decision.action is Action.ANY
        and decision.mode in _FREE_MODES
        and decision.reason is not Reason.TRIAL
    )
