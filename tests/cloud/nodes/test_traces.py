"""Spans of a tier as it is served, with real replicas, at a collector that takes OTLP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from edge.packages.catalogue import DEFAULT_MODEL
from shared.testing.program import isthmus
from tests.cloud.nodes.conftest import MODEL, READY_LIMIT_S, chat

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from shared.testing.collector import Collector

pytestmark = [pytest.mark.cloud, pytest.mark.slow, pytest.mark.timeout(1800)]

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CANARY = "the canary of the sea"


@pytest.mark.parametrize("streams", ["direct", "relayed"])
async def test_request_and_engine_work_are_spans_of_the_callers_trace(
    home: Path, free_port: Callable[[], int], streams: str
) -> None:
    port = free_port()
    async with Collector() as collector, aiohttp.ClientSession() as session:
        section = {
            "port": port,
            "models": [{**MODEL, "source": f"package:{DEFAULT_MODEL}"}],
            "ingress": {"streams": streams},
            "tracing": {"endpoint": collector.url, "interval_s": 0.2},
        }
        with isthmus("cloud", "serve", home=home, settings={"cloud": section}, name="traced") as program:
            url = f"http://127.0.0.1:{port}/v1/chat/completions"

            async def answers() -> bool:
                assert program.process.poll() is None, program.log_end()
                try:
                    async with session.post(url, json=chat()) as response:
                        return response.status == 200
                except aiohttp.ClientError:
                    return False

            async with asyncio.timeout(READY_LIMIT_S):
                while not await answers():
                    await asyncio.sleep(0.5)
                body = chat(stream=True, stream_options={"include_usage": True})
                body["messages"][0]["content"] = CANARY
                given = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
                async with session.post(url, json=body, headers=given) as response:
                    assert (await response.read()).endswith(b"data: [DONE]\n\n")
                while len(spans := [span for span in collector.spans if span.trace_id == TRACE]) < 2:
                    await asyncio.sleep(0.1)
            assert await asyncio.to_thread(program.end, 120) == 0
    by_name = {span.name: span for span in spans}
    request, work = by_name["POST /v1/chat/completions"], by_name[f"chat {DEFAULT_MODEL}"]
    assert (request.parent_id, work.parent_id) == (PARENT, request.span_id)
    assert (request.kind, request.service, request.failed) == ("server", "isthmus-cloud", False)
    assert request.facts["http.response.status_code"] == 200
    assert work.facts["gen_ai.usage.output_tokens"] == 8
    assert work.facts["gen_ai.response.finish_reasons"] == ["length"]
    assert CANARY.encode() not in b"".join(collector.raw)
