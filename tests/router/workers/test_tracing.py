"""Traces of a router as processes: each worker sends its own spans, the last of them on its way out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from shared.testing.answers import MODEL
from shared.testing.program import isthmus
from shared.testing.upstream import Upstream

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from shared.testing.collector import Collector

ASKED = 24
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Which city is the capital of France?"}]}


async def test_workers_send_their_last_spans_within_the_drain_limit(
    tmp_path: Path, edge: Upstream, free_port: Callable[[], int]
) -> None:
    """No span is due for ten minutes, so all that come were sent at the end."""
    async with Collector() as collector:
        tracing = {"endpoint": collector.url, "interval_s": 600}
        models = [{"id": MODEL, "context_tokens": 4096}]
        edges = [{"id": "edge-1", "url": edge.url, "models": models}]
        port = free_port()
        settings = {"router": {"port": port, "workers": 2, "edges": edges, "tracing": tracing, "drain_limit_s": 5}}
        with isthmus("router", "serve", home=tmp_path, settings=settings) as program:
            url = f"http://127.0.0.1:{port}"
            await asyncio.to_thread(program.wait_answer, f"{url}/readyz", 90)
            async with asyncio.timeout(60):
                while program.log.read_text().count('"listening"') < 2:
                    await asyncio.sleep(0.1)
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
                for _ in range(ASKED):
                    async with session.post(f"{url}/v1/chat/completions", json=BODY) as response:
                        assert response.status == 200
            assert collector.came == 0
            assert await asyncio.to_thread(program.end) == 0
        assert len(collector.named("POST /v1/chat/completions")) == ASKED
        assert len(collector.raw) == 2, "one batch of each worker"
        assert "Traceback" not in program.log.read_text()
