"""A stream cut before a real engine goes on at another agent, token for token as if nothing had happened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from edge.devices.probe import probe
from edge.packages.package import Package
from edge.runtime.plan import DETERMINISTIC, PlanRequest, plan_engine
from edge.runtime.supervisor import SupervisedEngine
from shared.clock import SystemClock
from shared.fleet import ServedModel
from shared.testing.toxics import ToxicProxy
from tests.edge.conftest import installed_model, model_library
from tests.edge.service.harness import Running, running_agent
from tests.router.conftest import RunningRouter, StartRouter, scanner, start_router

__all__ = ["installed_model", "model_library", "scanner", "start_router"]
pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
DIGEST = "sha256:" + "e" * 64
ASKED = {"temperature": 0, "max_tokens": 40, "stream": True}
QUESTION = "Tell me in three sentences what a bridge is."


@pytest.fixture
async def running(installed_model: Package, tmp_path: Path) -> AsyncIterator[Running]:
    request = PlanRequest(slots=2, context_tokens=512, threads=1, threads_batch=1)
    plan = plan_engine(installed_model, probe(), request)
    assert DETERMINISTIC in plan.features
    engine = SupervisedEngine(plan, clock=SystemClock(), run_dir=tmp_path / "run")
    async with running_agent(engine, queue=16) as running:
        yield running


async def _asked(router: RunningRouter, model: str, cut: ToxicProxy | None, after: int) -> tuple[str, str, bytes]:
    """Text, label and bytes of the answer; the proxy is cut once so many events of content came."""
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], **ASKED}
    received, seen = b"", 0
    async with router.send(orjson.dumps(body)) as response:
        assert response.status == 200, await response.text()
        async for data in response.content.iter_any():
            received += data
            seen = received.count(b'"content"')
            if cut is not None and seen > after:
                cut.cut()
                cut = None
        label = response.headers["x-isthmus-resume"]
    chunks: list[dict[str, Any]] = [
        orjson.loads(part[6:]) for part in received.split(b"\n\n") if part.startswith(b"data: {")
    ]
    assert len({chunk["id"] for chunk in chunks}) == 1
    return "".join(c["delta"].get("content") or "" for k in chunks for c in k["choices"]), label, received


async def test_greedy_text_is_the_same_wherever_it_was_cut(
    running: Running, start_router: StartRouter, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{name: resume, act: {resume: true}}]\n")
    router = await start_router(policy={"file": policy, "stale_after_ms": 600_000}, retry={"floor_per_10s": 100})
    async with ToxicProxy(running.url) as first, ToxicProxy(running.url) as second:
        async with router.session.get(running.url + "/v1/models") as response:
            name = (await response.json())["data"][0]["id"]
        features = ("continuation", DETERMINISTIC)
        model = (ServedModel(model_id=name, context_tokens=512, digest=DIGEST, features=features),)
        for proxy, backend, rate in ((first, "edge-1", 100.0), (second, "edge-2", 50.0)):
            rates = {"decode_tokens_per_s": rate, "prefill_tokens_per_s": rate * 10}
            await router.report(proxy, backend, models=model, **rates)
        whole, label, _ = await _asked(router, name, None, 0)
        assert label == "exact" and len(whole) > 40
        resumed = 0
        for after in (1, 3, 6, 10, 15):
            await router.report(first, "edge-1", models=model, decode_tokens_per_s=100.0, prefill_tokens_per_s=1e3)
            text, label, received = await _asked(router, name, first, after)
            assert (text, label) == (whole, "exact")
            assert received.endswith(b"data: [DONE]\n\n")
            resumed += b": resumed on edge-2, exact\n\n" in received
        assert resumed >= 1, "no cut came before the answer's end"
