"""The way of one generation request: read → validate → translate → fit → slot → adapters → engine → answer, and one
outcome."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass

from aiohttp import web

from edge.scheduling.speculation import RequestKind, SpeculationMode
from edge.service import fit, spans
from edge.service.adapters.selection import served_name
from edge.service.adapters.service import Adapters
from edge.service.admission import Admission
from edge.service.answer import StreamAnswer
from edge.service.closing import Closing
from edge.service.control_tokens import ControlTokens
from edge.service.deadline import answering
from edge.service.dialect import Asked, Dialect
from edge.service.engine_client import EngineClient
from edge.service.grammar_check import GrammarCheck
from edge.service.outcome import Outcome, counted
from edge.service.rates import Rates, Timings
from edge.service.request_kind import kind_of
from edge.service.served import Served
from edge.service.thermal.ladder import Measures
from edge.service.translation import EngineRequest, translate
from shared import logs
from shared.clock import Clock
from shared.errors import BackendTimeout, IsthmusError, NotReady, QueueFull
from shared.http.errors import REQUEST_ID
from shared.http.intake import read_object
from shared.http.lifecycle import Lifecycle
from shared.http.names import OUTPUT_CAP_HEADER
from shared.http.tracing import span_of
from shared.openai.validation import validate
from shared.telemetry import EdgeMetrics


@dataclass(frozen=True, slots=True)
class GenerationLimits:
    """See `EdgeSettings` and `LimitSettings` for the meaning of each."""

    body_bytes: int
    connections: int
    body_s: float
    client_stall_s: float
    keepalive_s: float
    idle_limit_s: float
    grammar_s: float
    exact_adapters: bool
    """Answers with adapters depend on neither cache nor company."""


class Generation:
    """Serves every route that generates text, in whichever dialect."""

    def __init__(
        self,
        served: Served,
        client: EngineClient,
        admission: Admission,
        adapters: Adapters,
        lifecycle: Lifecycle,
        limits: GenerationLimits,
        *,
        rates: Rates,
        metrics: EdgeMetrics,
        clock: Clock,
        measures: Callable[[], Measures],
        observe: Callable[[RequestKind, SpeculationMode | None, Timings], None],
        plainly: Callable[[], contextlib.AbstractAsyncContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """`plainly` has the engine decode without speculation for as long as a block runs."""
        self._served = served
        self._client = client
        self._admission = admission
        self._adapters = adapters
        self._lifecycle = lifecycle
        self._limits = limits
        self._rates = rates
        self._metrics = metrics
        self._clock = clock
        self._measures = measures
        self._observe = observe
        self._plainly = plainly
        self._grammars = GrammarCheck(limit_s=limits.grammar_s)
        self.control_tokens = ControlTokens(client)
        self._log = logs.get("generation")

    async def serve(self, request: web.Request, dialect: Dialect, owner: str | None = None) -> web.StreamResponse:
        """Answer one request of the key called `owner`; raises what `shared.http.errors` turns into an answer."""
        with counted(self._metrics, dialect.route) as outcome, self._lifecycle.request():
            if self._lifecycle.in_flight > self._limits.connections:
                raise QueueFull("Too many requests are open.", retry_after_s=self._admission.retry_after_s(owner))
            outcome.started_ms = self._clock.now_ms()
            outcome.owner = owner
            outcome.span = span_of(request)
            limits = self._limits
            _, body = await read_object(
                request, limit_bytes=limits.body_bytes, limit_s=limits.body_s, typed=dialect.typed
            )
            asked = dialect.read(body)
            if asked.at_once is not None:
                return await self._at_once(asked, asked.at_once)
            prepared = await self._prepared(asked, outcome)
            if prepared.stream:
                return await self._stream(request, dialect, prepared, outcome)
            return await self._whole(dialect, prepared, outcome)

    async def _at_once(self, asked: Asked, answer: bytes) -> web.StreamResponse:
        """`answer`, if the model serves."""
        base = self._served.require().model_id
        served_name(asked.body, base)
        await self._adapters.chosen(asked.body, base)
        return web.Response(body=answer, content_type="application/json")

    async def _prepared(self, asked: Asked, outcome: Outcome) -> EngineRequest:
        validate(asked.endpoint, asked.body)
        outcome.kind = kind_of(asked.body)
        facts = await self._served.arriving()
        prepared = translate(asked.endpoint, asked.body, facts, output_cap_tokens=self._measures().output_cap_tokens)
        chosen = await self._adapters.chosen(asked.body, facts.model_id)
        prepared = prepared.with_adapters(chosen, exact=self._limits.exact_adapters)
        if asked.limit_is_bound:
            prepared = prepared.without_promise()
        if asked.penalty_window_tokens is not None:
            prepared = prepared.with_penalty_window(asked.penalty_window_tokens)
        prepared = prepared.with_body(await self.control_tokens.defused(prepared.body))
        await fit.check(prepared, self._client, context_tokens=facts.context_tokens)
        await self._grammars.check(prepared.grammar)
        return prepared

    async def _stream(
        self, request: web.Request, dialect: Dialect, prepared: EngineRequest, outcome: Outcome
    ) -> web.StreamResponse:
        answer = StreamAnswer(
            request,
            dialect,
            {"x-request-id": request[REQUEST_ID]} | _cap_header(prepared),
            clock=self._clock,
            keepalive_s=self._limits.keepalive_s,
            stall_limit_s=self._limits.client_stall_s,
        )
        chunks = dialect.chunks(prepared)
        held: list[bytes] = []
        try:
            async with answer.kept_alive(), self._events(prepared, outcome, chunks.closing) as events:
                async for event in events:
                    first = not chunks.has_content
                    held += chunks.feed(event)
                    if not chunks.has_content:
                        continue
                    if first:
                        self._observe_first(outcome.started_ms)
                    for out in held:
                        await answer.send(out)
                    held.clear()
        except IsthmusError as error:
            if not answer.committed:
                raise
            outcome.name = "broken"
            outcome.span.fail(error.code)
            self._log.warning("answer_broken", request_id=request[REQUEST_ID], code=error.code)
            return await answer.broken(error)
        self._observe_end(chunks.closing, outcome)
        return await answer.finish()

    async def _whole(self, dialect: Dialect, prepared: EngineRequest, outcome: Outcome) -> web.StreamResponse:
        assembly = dialect.whole(prepared)
        async with self._events(prepared, outcome, assembly.closing) as events:
            async for event in events:
                first = not assembly.has_content
                assembly.feed(event)
                if first and assembly.has_content:
                    self._observe_first(outcome.started_ms)
        self._observe_end(assembly.closing, outcome)
        headers = _cap_header(prepared)
        return web.Response(body=assembly.answer(), content_type="application/json", headers=headers)

    @contextlib.asynccontextmanager
    async def _events(
        self, prepared: EngineRequest, outcome: Outcome, closing: Closing
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The engine's events once a slot is free; pings of a silent engine do not count as life."""
        limit = answering(self._lifecycle.expired, idle_limit_s=self._limits.idle_limit_s)
        slot = self._admission.slot(prepared.slots, owner=outcome.owner, lane=prepared.lane)
        plainly = self._plainly if prepared.top_logprobs is not None else contextlib.nullcontext
        try:
            async with (
                limit as alive,
                plainly(),
                spans.admitted(outcome.span, prepared, slot),
                self._adapters.using(prepared.adapters),
            ):
                alive()
                await self._fit_again(prepared)
                mode = self._served.require().speculation if self._admission.busy == 1 else None
                turns = self._admission.turns
                with spans.engine(outcome.span, prepared, closing):
                    async with (
                        self._client.stream(prepared) as events,
                        contextlib.aclosing(_watched(events, alive)) as watched,
                    ):
                        yield watched
                outcome.mode = mode if self._admission.turns == turns else None
        except BackendTimeout:
            self._client.doubt()
            raise

    async def _fit_again(self, prepared: EngineRequest) -> None:
        """Refuse what fitted the engine that served when it came, and does not fit the one that serves now."""
        facts = await self._served.arriving()
        if facts.context_tokens < prepared.context_tokens:
            await fit.check(prepared, self._client, context_tokens=facts.context_tokens)
        if prepared.choices > facts.slots:  # several prompts can share a slot, one after the other
            raise NotReady("The device has taken back slots that this request needs.")

    def _observe_first(self, started_ms: int) -> None:
        self._metrics.ttft.observe((self._clock.now_ms() - started_ms) / 1000)

    def _observe_end(self, closing: Closing, outcome: Outcome) -> None:
        for timings in closing.timings:
            self._rates.record(timings)
        mode = outcome.mode if len(closing.timings) == 1 else None
        for timings in closing.timings[:1]:
            self._observe(outcome.kind, mode, timings)


def _cap_header(prepared: EngineRequest) -> dict[str, str]:
    """Why an answer may end with `finish_reason: length` before the caller's own limit."""
    cap_tokens = prepared.output_cap_tokens
    return {} if cap_tokens is None else {OUTPUT_CAP_HEADER: f"{cap_tokens}; reason=thermal"}


async def _watched(events: AsyncIterator[bytes], alive: Callable[[], None]) -> AsyncGenerator[bytes]:
    """The same events; each but the engine's pings pushes the idle limit back."""
    async for event in events:
        if not event.startswith(b":"):
            alive()
        yield event
