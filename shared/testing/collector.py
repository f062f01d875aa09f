"""A collector that takes spans by OTLP over HTTP, as a real one does, and can be slow or refuse."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True, slots=True)
class Seen:
    """One span as it arrived. Ids are lower-case hex; `parent_id` is empty at the head of a trace."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    failed: bool
    facts: dict[str, Any] = field(default_factory=dict)


class Collector:
    """Use as an async context manager; `url` is the endpoint. `status` and `wait_s` say how it treats who comes."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.wait_s = 0.0
        self.raw: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.came = 0

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1/traces"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def spans(self) -> list[Seen]:
        """Every span that was taken."""
        return [span for raw in self.raw for span in _spans(raw)]

    def named(self, name: str) -> list[Seen]:
        """The spans of that name."""
        return [span for span in self.spans if span.name == name]

    async def _take(self, request: web.Request) -> web.Response:
        self.came += 1
        raw = await request.read()
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        await asyncio.sleep(self.wait_s)
        if self.status == 200:
            self.raw.append(raw)
            self.headers.append(dict(request.headers))
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(status=self.status, body=body, content_type="application/x-protobuf")


def _spans(raw: bytes) -> list[Seen]:
    found = []
    for resource in ExportTraceServiceRequest.FromString(raw).resource_spans:
        service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
        found += [_seen(service, span) for scope in resource.scope_spans for span in scope.spans]
    return found


def _seen(service: str, span: WireSpan) -> Seen:
    return Seen(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        facts={a.key: _value(a.value) for a in span.attributes},
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
