"""One trace over two processes' worth of parts: a router, an edge agent behind it, and one collector for both."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.edge.service.conftest import engine, server
from tests.edge.service.fakes import MODEL, FakeEngine
from tests.edge.service.harness import running_agent, until
from tests.router.conftest import StartRouter, scanner, start_router

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from shared.testing.collector import Collector

__all__ = ["engine", "scanner", "server", "start_router"]


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with Collector() as collector:
        yield collector


async def test_one_trace_from_router_to_engine(
    start_router: StartRouter, engine: FakeEngine, collector: Collector
) -> None:
    """From the answer's header to the trace, and from the trace to the audit record."""
    tracing = {"endpoint": collector.url, "interval_s": 0.02}
    async with running_agent(engine, tracing=tracing) as agent:
        router = await start_router(edges=[{"id": "edge-1", "url": agent.url}], tracing=tracing)
        await until(lambda: any(b.models for b in router.router.directory.snapshot().backends))
        async with router.ask(stream=True, headers={"x-request-id": "mine"}) as response:
            await response.read()
            trace_id = response.headers["x-isthmus-trace-id"]
        await until(lambda: len([s for s in collector.spans if s.kind == "server"]) == 2)
        spans = [span for span in collector.spans if span.trace_id == trace_id]
        of = {(span.service, span.name): span for span in spans}
        attempt = of["isthmus-router", f"chat {MODEL}"]
        agents = of["isthmus-edge", "POST /v1/chat/completions"]
        assert agents.parent_id == attempt.span_id
        assert of["isthmus-edge", f"chat {MODEL}"].parent_id == agents.span_id
        assert {name for _, name in of} == {
            "POST /v1/chat/completions",
            "classify",
            "decide",
            "admission",
            attempt.name,
        }
        [record] = await router.records(1)
        assert (record["trace_id"], record["request_id"]) == (trace_id, "mine")
