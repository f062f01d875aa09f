"""Measured answers lead to swaps of the engine: what pays stays on, what does not is left, heat ends it at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web

from edge import watches
from edge.runtime.port import EngineState
from edge.scheduling.speculation import Reason, RequestKind, SpeculationMode, SpeculationPolicy
from edge.service.admission import Admission
from edge.service.memory_watch import MemoryWatch
from edge.service.rates import Timings
from edge.service.request_kind import kind_of
from edge.service.speculation_watch import SpeculationWatch
from edge.service.thermal.watch import ThermalWatch
from edge.speed_settings import SpeculationSettings
from shared.errors import NotReady, QueueFull, StartFailed
from shared.fleet import ThermalLevel
from shared.testing.clock import ManualClock
from tests.edge.service.fakes import FACTS, EngineServer, Exchange, FakeEngine, answer_of, plays
from tests.edge.service.harness import running_agent, until

OFF, MAP, SIMPLE = SpeculationMode.OFF, SpeculationMode.NGRAM_MAP_K, SpeculationMode.NGRAM_SIMPLE
POLICY = SpeculationPolicy(candidates=(MAP, SIMPLE), dwell_ms=1_000, retry_ms=60_000, least_tokens=100)


class Bench:
    """A watch over an engine whose speed in each mode is scripted."""

    def __init__(self, tmp_path: Path) -> None:
        self.engine = FakeEngine(EngineServer(tmp_path / "engine.sock"))
        self.clock = ManualClock()
        self.level = ThermalLevel.NOMINAL
        self.room = True
        self.changes = 0
        self.waits = 0
        self.watch = SpeculationWatch(
            self.engine,
            POLICY,
            clock=self.clock,
            level=lambda: self.level,
            has_room=lambda: self.room,
            alone=self._alone,
            interval_s=1.0,
            on_change=self._changed,
        )

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        self.waits += 1
        yield

    def _changed(self) -> None:
        self.changes += 1

    async def serve(self, speeds: dict[SpeculationMode, float], *, answers: int = 4) -> SpeculationMode:
        """Answers of 50 tokens in the mode in force, then one decision after the dwell time."""
        for _ in range(answers):
            mode = self.watch.mode
            drafted = 0 if mode is OFF else 60
            timings = Timings(40, 100.0, 50, 49_000 / speeds[mode], drafted, drafted // 2)
            self.watch.record(RequestKind.COPY, mode, timings)
        await self.clock.advance(1.5)
        await self.watch.step()
        return self.watch.mode


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield Bench(tmp_path)


async def test_what_pays_stays_and_the_rest_is_left(bench: Bench) -> None:
    speeds = {OFF: 100.0, MAP: 90.0, SIMPLE: 140.0}
    modes = [await bench.serve(speeds) for _ in range(8)]
    assert modes[:2] == [MAP, SIMPLE]
    assert modes[-1] is SIMPLE
    assert bench.watch.reason in (Reason.GAIN, Reason.DWELL)
    assert bench.engine.modes == [MAP, SIMPLE]
    assert bench.changes >= 2


async def test_nothing_is_tried_before_plain_decoding_was_measured(bench: Bench) -> None:
    assert await bench.serve({OFF: 100.0}, answers=1) is OFF
    assert bench.watch.reason is Reason.NOT_MEASURED
    assert bench.engine.modes == []


async def test_heat_ends_it_at_once(bench: Bench) -> None:
    speeds = {OFF: 100.0, MAP: 140.0, SIMPLE: 90.0}
    for _ in range(6):
        await bench.serve(speeds)
    assert bench.watch.mode is MAP
    bench.level = ThermalLevel.WARM
    await bench.watch.step()
    assert (bench.watch.mode, bench.watch.reason) == (OFF, Reason.THERMAL)
    assert bench.engine.modes[-1] is OFF


async def test_heat_ends_it_where_two_engines_do_not_fit_by_letting_the_old_one_go_first(bench: Bench) -> None:
    speeds = {OFF: 100.0, MAP: 140.0, SIMPLE: 90.0}
    for _ in range(6):
        await bench.serve(speeds)
    assert bench.watch.mode is MAP
    bench.engine.set(EngineState.READY)
    bench.level, bench.room = ThermalLevel.WARM, False
    await bench.watch.step()
    assert (bench.watch.mode, bench.watch.reason) == (OFF, Reason.THERMAL)
    assert (bench.engine.modes[-1], bench.engine.overlaps[-1], bench.waits) == (OFF, False, 1)
    assert all(bench.engine.overlaps[:-1])


async def test_a_mode_that_the_engine_gave_up_by_itself_has_lost(bench: Bench) -> None:
    """A draft whose file is gone, say: the next start goes without it."""
    speeds = {OFF: 100.0, MAP: 140.0, SIMPLE: 90.0}
    assert await bench.serve(speeds) is MAP
    facts = bench.engine.status.facts
    assert facts is not None
    bench.engine.set(EngineState.READY, facts=replace(facts, speculation=OFF))
    assert await bench.serve(speeds) is OFF
    assert await bench.serve(speeds) is SIMPLE
    assert bench.engine.modes == [MAP, SIMPLE]


async def test_answers_in_company_judge_nothing_and_end_what_they_leave_unjudged(bench: Bench) -> None:
    speeds = {OFF: 100.0, MAP: 140.0, SIMPLE: 90.0}
    for _ in range(6):
        await bench.serve(speeds)
    assert bench.watch.mode is MAP
    for _ in range(POLICY.most_unjudged):
        bench.watch.record(RequestKind.COPY, None, Timings(40, 100.0, 50, 500.0))
    await bench.clock.advance(1.5)
    await bench.watch.step()
    assert (bench.watch.mode, bench.watch.reason) == (OFF, Reason.NOT_MEASURED)
    assert await bench.serve(speeds) is OFF  # what it once gained does not bring it back
    await bench.clock.advance(POLICY.retry_ms / 1000)
    assert await bench.serve(speeds) is not OFF


async def test_an_answer_that_had_company_at_any_time_is_told_apart(
    server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[SpeculationMode | None] = []
    monkeypatch.setattr(SpeculationWatch, "record", lambda _, kind, mode, timings: seen.append(mode))
    going = asyncio.Event()

    async def slowly(exchange: Exchange) -> web.StreamResponse:
        await going.wait()
        return await plays(answer_of("Paris."))(exchange)

    async def ask() -> int:
        async with running.chat() as response:
            await response.read()
            return int(response.status)

    async with running_agent(FakeEngine(server, replace(FACTS, slots=2)), slots=2) as running:
        seen.clear()
        assert await ask() == 200
        server.scripts.append(slowly)
        long = asyncio.create_task(ask())
        await until(lambda: running.agent.admission.busy == 1)
        assert await ask() == 200  # comes and goes while the other one runs
        going.set()
        assert await long == 200
    assert seen == [OFF, None, None]


async def test_heat_has_the_engine_swapped_when_the_line_is_full_and_nothing_new_is_taken(bench: Bench) -> None:
    """As it is when it matters: at full load, on a device without room for two engines."""
    admission = Admission(slots=1, queue_limit=0, clock=bench.clock)
    watch = watches.speculation_watch(
        SpeculationSettings(),
        bench.engine,
        cast(ThermalWatch, SimpleNamespace(level=ThermalLevel.CRITICAL, measures=SimpleNamespace(speculation=False))),
        cast(MemoryWatch, SimpleNamespace(has_room=False)),
        admission,
        bench.clock,
        lambda: None,
    )
    await bench.engine.start()
    bench.engine.set(EngineState.READY, facts=replace(FACTS, speculation=SIMPLE))
    async with admission.slot():
        step = asyncio.create_task(watch.step())
        await until(lambda: admission.queued == 1)
        admission.close(lambda: QueueFull("hot"))
        assert bench.engine.modes == []
    await step
    assert (bench.engine.modes, bench.engine.overlaps) == ([OFF], [False])
    assert (watch.mode, watch.reason, admission.busy) == (OFF, Reason.THERMAL, 0)


async def test_without_room_for_a_second_engine_nothing_is_swapped(bench: Bench) -> None:
    bench.room = False
    for _ in range(4):
        assert await bench.serve({OFF: 100.0}) is OFF
    assert bench.engine.modes == []


async def test_a_mode_that_does_not_start_leaves_the_old_one_and_is_not_tried_again_at_once(bench: Bench) -> None:
    bench.engine.failures.append(StartFailed("refused"))
    speeds = {OFF: 100.0, MAP: 140.0, SIMPLE: 90.0}
    assert await bench.serve(speeds) is OFF
    assert await bench.serve(speeds) is SIMPLE
    assert bench.engine.modes == [SIMPLE]


async def test_answers_too_short_to_tell_are_not_counted(bench: Bench) -> None:
    """However many there are: together they would be tokens enough to try something."""
    for _ in range(200):
        bench.watch.record(RequestKind.PROSE, OFF, Timings(40, 100.0, 3, 5.0))
    await bench.clock.advance(1.5)
    await bench.watch.step()
    assert bench.watch.reason is Reason.NOT_MEASURED
    assert bench.engine.modes == []


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"messages": [{"role": "user", "content": "Tell me about bread."}]}, RequestKind.PROSE),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x " * 400}]}]}, RequestKind.COPY),
        ({"messages": [{"role": "user", "content": "Fix:\n```\nx = 1\n```"}]}, RequestKind.CODE),
        ({"messages": [{"role": "user", "content": "def f(x):\n  return x"}]}, RequestKind.CODE),
        ({"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}]}, RequestKind.STRUCTURED),
        ({"messages": [{"role": "user", "content": "hi"}], "response_format": {"type": "json_object"}},
         RequestKind.STRUCTURED),
        ({"messages": [{"role": "user", "content": "hi"}], "response_format": {"type": "text"}}, RequestKind.PROSE),
        ({"prompt": "word " * 300}, RequestKind.COPY),
        ({"prompt": [1, 2, 3]}, RequestKind.PROSE),
        ({"messages": [{"role": "assistant", "content": None}]}, RequestKind.PROSE),
    ],
)  # fmt: skip
def test_kinds_of_requests(body: dict[str, object], kind: RequestKind) -> None:
    assert kind_of(body) is kind


async def _speculating(bench: Bench) -> None:
    await bench.engine.start()
    speeds = {OFF: 100.0, MAP: 140.0, SIMPLE: 90.0}
    for _ in range(6):
        await bench.serve(speeds)
    assert bench.watch.mode is MAP


@pytest.mark.parametrize("room", [True, False])
async def test_log_probabilities_end_it_at_once(bench: Bench, room: bool) -> None:
    """SP-03: of tokens that were proposed the engine tells none, and the answer would leave them out."""
    await _speculating(bench)
    bench.room = room
    async with bench.watch.plain():
        facts = bench.engine.status.facts
        assert facts is not None and facts.speculation is OFF
        assert (bench.watch.mode, bench.watch.reason) == (OFF, Reason.LOGPROBS)
        await bench.clock.advance(100)
        await bench.watch.step()
        assert bench.watch.mode is OFF, "not while somebody needs plain decoding"
    bench.room = True
    await bench.clock.advance(2)
    await bench.watch.step()
    assert bench.watch.mode is not MAP, "who asks again and again must not make the engine change back and forth"
    await bench.serve({OFF: 100.0, MAP: 140.0, SIMPLE: 90.0})
    await bench.clock.advance(POLICY.retry_ms / 1000)
    await bench.serve({OFF: 100.0, MAP: 140.0, SIMPLE: 90.0})
    assert bench.watch.mode in (MAP, SIMPLE)


async def test_many_who_need_plain_decoding_share_one_swap_and_may_leave(bench: Bench) -> None:
    await _speculating(bench)
    swaps = len(bench.engine.modes)

    async def ask() -> None:
        async with bench.watch.plain():
            await asyncio.sleep(0)

    first, *others = [asyncio.create_task(ask()) for _ in range(5)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, *others, return_exceptions=True)
    assert all(other.exception() is None for other in others)
    assert bench.engine.modes[swaps:] == [OFF]


async def test_an_engine_that_goes_on_speculating_tells_no_log_probabilities(bench: Bench) -> None:
    await _speculating(bench)
    bench.engine.failures.append(StartFailed("no"))
    asking = asyncio.create_task(bench.watch.plain().__aenter__())
    for _ in range(200):
        await asyncio.sleep(0)
        await bench.clock.advance(0.05)
    with pytest.raises(NotReady):
        await asking
    async with bench.watch.plain():
        assert bench.watch.mode is OFF
