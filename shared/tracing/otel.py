"""Adapter of the tracing port to OpenTelemetry's SDK and its OTLP exporter over HTTP; the only module that loads them.

Spans wait in a bounded queue and are sent by a thread of their own, so a collector that is slow, dead or refusing
costs spans, which are counted, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelApiSpan
from opentelemetry.trace import Tracer as OtelApiTracer

from shared import __version__, logs
from shared.tracing.build import OnSpans
from shared.tracing.conventions import ERROR_TYPE, SERVICE_INSTANCE, SERVICE_NAME, SERVICE_VERSION
from shared.tracing.port import NO_FACTS, Facts, Kind, QuietSpan, Span, error_type_of
from shared.tracing.settings import TracingSettings
from shared.tracing.w3c import Carried, trace_parent

_KINDS = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}
_BATCH_SPANS = 512
_LIMITS = SpanLimits(
    max_span_attributes=64, max_events=0, max_links=0, max_attributes=64, max_attribute_length=256,
    max_span_attribute_length=256,
)  # fmt: skip


class OtelTracer:
    """Begins spans of one process and sends those that are sampled."""

    starts_traces = True

    def __init__(
        self, settings: TracingSettings, endpoint: str, headers: Mapping[str, str], *, tier: str, on_spans: OnSpans
    ) -> None:
        # The exporter logs every failure, with the collector's answer: here each change is one line of ours.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        who = {
            SERVICE_NAME: f"isthmus-{tier}",
            SERVICE_VERSION: __version__,
            SERVICE_INSTANCE: secrets.token_hex(8),
        }
        self._provider = TracerProvider(
            # Made here and not by `create`, which would add what it finds out about host, process and command line.
            resource=Resource(who),
            sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
            span_limits=_LIMITS,
            shutdown_on_exit=False,
        )
        self._queue = _Queue(_exporter(settings, endpoint, headers), settings, on_spans)
        self._provider.add_span_processor(self._queue)
        self._tracer = self._provider.get_tracer("isthmus", __version__)

    def begin(self, name: str, carried: Carried | None, facts: Facts = NO_FACTS) -> Span:
        context = Context()
        if carried is not None:
            # Without the caller's `tracestate`: the exporter would write it down.
            flags = TraceFlags(TraceFlags.SAMPLED if carried.sampled else TraceFlags.DEFAULT)
            parent = SpanContext(int(carried.trace_id, 16), int(carried.span_id, 16), is_remote=True, trace_flags=flags)
            context = set_span_in_context(NonRecordingSpan(parent), context)
        span = self._tracer.start_span(name, context, SpanKind.SERVER)
        ours = _Recorded(self._tracer, span, facts)
        return ours if span.is_recording() else QuietSpan(ours.trace_id, ours.traceparent)

    async def close(self, limit_s: float) -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def send_the_rest() -> None:
            self._provider.shutdown()
            try:
                loop.call_soon_threadsafe(done.set)
            except RuntimeError:  # the limit has passed, and the loop is gone
                return

        # A daemon: what still hangs at a collector then must not hold up the end of the process.
        threading.Thread(target=send_the_rest, name="last-spans", daemon=True).start()
        try:
            async with asyncio.timeout(limit_s):
                await done.wait()
        except TimeoutError:
            self._queue.give_up()


class _Recorded:
    """A span that is sampled. Facts are given to the SDK all at once, at the end: each time it takes some, it checks
    and locks."""

    __slots__ = ("_ended", "_facts", "_failed", "_span", "_tracer")
    recording = True

    def __init__(self, tracer: OtelApiTracer, span: OtelApiSpan, facts: Facts) -> None:
        self._tracer = tracer
        self._span = span
        self._facts: dict[str, str | bool | int | float | Sequence[str]] = {}
        self.note(facts)
        self._ended = self._failed = False

    @property
    def trace_id(self) -> str:
        return format_trace_id(self._span.get_span_context().trace_id)

    @property
    def traceparent(self) -> str:
        own = self._span.get_span_context()
        return trace_parent(self.trace_id, format_span_id(own.span_id), sampled=own.trace_flags.sampled)

    def child(self, name: str, *, kind: Kind = "internal", facts: Facts = NO_FACTS) -> Span:
        context = set_span_in_context(self._span, Context())
        return _Recorded(self._tracer, self._tracer.start_span(name, context, _KINDS[kind]), facts)

    def note(self, facts: Facts) -> None:
        self._facts.update({name: value for name, value in facts.items() if value is not None})

    def fail(self, error_type: str) -> None:
        if self._failed:
            return
        self._failed = True
        self._facts[ERROR_TYPE] = error_type
        self._span.set_status(Status(StatusCode.ERROR))  # no description: it would be a message

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._span.set_attributes(self._facts)
            self._span.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and (error_type := error_type_of(error)) is not None:
            self.fail(error_type)
        self.end()


class _Queue(BatchSpanProcessor):
    """The SDK's processor, with a bound that is told: what does not fit is dropped before it is queued."""

    def __init__(self, exporter: SpanExporter, settings: TracingSettings, on_spans: OnSpans) -> None:
        self._handed_over = _Told(exporter, on_spans)
        self._limit = settings.queue_spans
        self._on_spans = on_spans
        self._taken = 0
        super().__init__(
            self._handed_over,
            max_queue_size=settings.queue_spans,
            schedule_delay_millis=settings.interval_s * 1000,
            max_export_batch_size=min(_BATCH_SPANS, settings.queue_spans),
            export_timeout_millis=settings.timeout_s * 1000,
        )

    @property
    def waiting(self) -> int:
        return self._taken - self._handed_over.spans

    def on_end(self, span: ReadableSpan) -> None:
        if self.waiting >= self._limit:
            self._on_spans("queue_full", 1)
            return
        self._taken += 1
        super().on_end(span)

    def give_up(self) -> None:
        """Count what will not be sent any more."""
        self._handed_over.shutdown()
        if self.waiting > 0:
            self._on_spans("shutdown", self.waiting)


class _Told(SpanExporter):
    """An exporter that tells what became of each batch, and logs when that changes."""

    def __init__(self, exporter: SpanExporter, on_spans: OnSpans) -> None:
        self._exporter = exporter
        self._on_spans = on_spans
        self._log = logs.get("tracing")
        self._works = True
        self._closed = False
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += len(spans)
        result = self._exporter.export(spans)
        works = result is SpanExportResult.SUCCESS
        self._on_spans("exported" if works else "export_failed", len(spans))
        if works is not self._works:
            self._works = works
            self._log.info("collector_back") if works else self._log.warning("collector_fails")
        return result

    def shutdown(self) -> None:
        if not self._closed:
            self._closed = True
            self._exporter.shutdown()


def _exporter(settings: TracingSettings, endpoint: str, headers: Mapping[str, str]) -> SpanExporter:
    session = requests.Session()
    session.trust_env = False  # neither a proxy nor credentials that some file holds for that host
    exporter: SpanExporter = OTLPSpanExporter(
        endpoint=endpoint,
        certificate_file=settings.ca_file,
        headers=dict(headers),
        timeout=settings.timeout_s,
        compression=Compression.Gzip,
        session=session,
    )
    return exporter
