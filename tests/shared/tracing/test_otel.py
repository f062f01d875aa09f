"""The adapter to OpenTelemetry under collectors that are dead, slow, refusing or gone: spans are lost and counted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shared.errors import NotFound, SettingsError
from shared.tracing.build import build_tracer
from shared.tracing.port import NO_SPAN, NoTracer, Span, Tracer
from shared.tracing.settings import TracingSettings
from shared.tracing.w3c import Carried

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from shared.testing.collector import Collector

DEAD = "http://127.0.0.1:9/v1/traces"
CARRIED = Carried("a" * 32, "b" * 16, sampled=True, state="canary=canary", baggage="canary=canary")


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with Collector() as collector:
        yield collector


class _Counts(Counter[str]):
    def __call__(self, outcome: str, count: int) -> None:
        self[outcome] += count


def _tracer(endpoint: str | None, counts: _Counts, **more: Any) -> Tracer:
    settings = TracingSettings(endpoint=endpoint, **{"interval_s": 0.02, "timeout_s": 0.2, **more})
    return build_tracer(settings, tier="router", on_spans=counts)


async def _until(counts: _Counts, outcome: str, count: int) -> None:
    async with asyncio.timeout(10):
        while counts[outcome] < count:
            await asyncio.sleep(0.01)


def _work(tracer: Tracer, count: int) -> list[Span]:
    spans = [tracer.begin("work", None) for _ in range(count)]
    for span in spans:
        span.end()
    return spans


async def test_without_an_endpoint_nothing_is_traced() -> None:
    tracer = _tracer(None, _Counts())
    assert isinstance(tracer, NoTracer) and tracer.begin("work", None) is NO_SPAN
    passed = tracer.begin("work", CARRIED)
    assert passed.child("part").traceparent == CARRIED.traceparent and not passed.recording


async def test_spans_arrive_with_their_facts_and_ends(collector: Collector) -> None:
    tracer = _tracer(collector.url, counts := _Counts())
    with tracer.begin("work", CARRIED, {"a": 1, "left out": None}) as span:
        with span.child("part", kind="client", facts={"list": ("x", "y"), "ratio": 0.5, "yes": True}):
            pass
        with pytest.raises(NotFound), span.child("refused"):
            raise NotFound("canary", code="no_such_thing")
        with pytest.raises(ValueError, match="canary"), span.child("failed"):
            raise ValueError("canary")
        with pytest.raises(asyncio.CancelledError), span.child("left"):
            raise asyncio.CancelledError("canary")
    await tracer.close(5)
    spans = {seen.name: seen for seen in collector.spans}
    assert spans["work"].parent_id == CARRIED.span_id and spans["work"].facts == {"a": 1}
    assert spans["part"].facts == {"list": ["x", "y"], "ratio": 0.5, "yes": True} and spans["part"].kind == "client"
    assert [spans[n].failed for n in ("work", "part", "refused", "failed", "left")] == [False, False, True, True, False]
    assert spans["refused"].facts == {"error.type": "no_such_thing"}
    assert spans["failed"].facts == {"error.type": "ValueError"}
    assert b"canary" not in b"".join(collector.raw)
    assert counts == {"exported": 5}


async def test_the_resource_names_the_tier_and_nothing_of_the_machine(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=canary")
    tracer = _tracer(collector.url, _Counts())
    _work(tracer, 1)
    await tracer.close(5)
    assert collector.spans[0].service == "isthmus-router" and b"canary" not in collector.raw[0]


async def test_headers_of_the_collector_come_from_a_file(collector: Collector, tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer a:b\n\nx-team: infra\n")
    tracer = _tracer(collector.url, _Counts(), headers_file=str(file))
    _work(tracer, 1)
    await tracer.close(5)
    assert collector.headers[0]["Authorization"] == "Bearer a:b" and collector.headers[0]["x-team"] == "infra"


@pytest.mark.parametrize("text", ["no colon", ": nameless", "two words: x", "é: x"])
def test_a_headers_file_that_is_none_is_refused_without_its_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / "headers"
    file.write_text(f"a: b\n{text}\n")
    with pytest.raises(SettingsError, match=r"Line 2 of .* is not") as error:
        _tracer(DEAD, _Counts(), headers_file=str(file))
    assert error.value.param == "router.tracing.headers_file" and text not in error.value.message


@pytest.mark.parametrize("name", ["headers_file", "ca_file"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError) as error:
        _tracer(DEAD, _Counts(), **{name: str(tmp_path / "none")})
    assert error.value.param == f"router.tracing.{name}"


@pytest.mark.parametrize("url", ["ftp://x", "collector:4318", "http://user:secret@host/v1/traces", "http://h/?key=x"])
def test_an_endpoint_is_an_address_without_a_secret(url: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        TracingSettings(endpoint=url)


async def test_a_dead_collector_costs_spans_and_nothing_else() -> None:
    tracer = _tracer(DEAD, counts := _Counts())
    _work(tracer, 10)
    await _until(counts, "export_failed", 10)
    _work(tracer, 1)
    await tracer.close(0)
    assert counts["exported"] == 0


async def test_a_collector_that_refuses_is_counted_and_used_again(collector: Collector) -> None:
    tracer = _tracer(collector.url, counts := _Counts())
    collector.status = 403
    _work(tracer, 3)
    await _until(counts, "export_failed", 3)
    collector.status = 200
    _work(tracer, 2)
    await _until(counts, "exported", 2)
    await tracer.close(5)


async def test_the_queue_before_a_slow_collector_is_bounded(collector: Collector) -> None:
    collector.wait_s = 60
    tracer = _tracer(collector.url, counts := _Counts(), queue_spans=16, timeout_s=60)
    _work(tracer, 16)
    async with asyncio.timeout(10):
        while not collector.came:
            await asyncio.sleep(0.01)
    _work(tracer, 20)  # 16 wait behind the batch that hangs
    assert counts == {"queue_full": 4}
    began_s = time.monotonic()
    await tracer.close(0.05)
    assert counts["shutdown"] == 16
    assert time.monotonic() - began_s < 30  # the collector would keep it for a minute


async def test_the_last_spans_are_sent_at_the_end(collector: Collector) -> None:
    tracer = _tracer(collector.url, counts := _Counts(), interval_s=600)
    _work(tracer, 700)  # more than one batch
    await tracer.close(10)
    assert len(collector.spans) == 700 and counts == {"exported": 700}


async def test_a_share_of_new_traces_is_recorded(collector: Collector) -> None:
    tracer = _tracer(collector.url, _Counts(), sample_ratio=0.5)
    recording = sum(span.recording for span in _work(tracer, 400))
    assert 120 < recording < 280
    unsampled = tracer.begin("work", Carried("a" * 32, "b" * 16, sampled=False))
    assert not unsampled.recording and unsampled.traceparent is not None
    assert unsampled.traceparent.startswith(f"00-{'a' * 32}-") and unsampled.traceparent.endswith("-00")
    await tracer.close(5)
