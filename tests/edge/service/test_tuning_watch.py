"""Measuring waits for a quiet moment, gives way to the first request, goes on later, and ends in a swap."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge.scheduling.tuning import Spin, Tuning
from edge.service.tuning_watch import TuningState, TuningWatch
from shared.errors import StartFailed
from shared.testing.clock import ManualClock
from tests.edge.service.fakes import EngineServer, FakeEngine

TUNING = Tuning(1, 2, Spin.BRIEF, 63, 0.4)


class Measurement:
    """Takes as long as it is told, and counts how often it was begun and broken off."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()
        self.begun = self.broken_off = 0
        self.failures: list[StartFailed] = []
        self.share_done = 0.5

    async def run(self) -> Tuning:
        self.begun += 1
        if self.failures:
            raise self.failures.pop()
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        return TUNING


class Bench:
    """A watch over a fake engine, with a clock that is moved by hand."""

    def __init__(self, folder: Path, *, known: bool = False) -> None:
        self.engine = FakeEngine(EngineServer(folder / "engine.sock"))
        self.clock = ManualClock()
        self.measurement = Measurement()
        self.quiet = True
        self.watch = TuningWatch(
            self.engine,
            None if known else self.measurement,
            known=known,
            quiet=lambda: self.quiet,
            settle_s=10.0,
            clock=self.clock,
        )

    async def pass_s(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            await asyncio.sleep(0)  # whoever has just been started sets its alarm first
            await self.clock.advance(0.25)

    @property
    def state(self) -> TuningState:
        return self.watch.standing.state


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_it_waits_until_nothing_was_asked_for_a_while_and_then_swaps(bench: Bench) -> None:
    running = asyncio.create_task(bench.watch.run())
    await bench.pass_s(9.5)
    assert (bench.state, bench.measurement.begun) == (TuningState.WAITING, 0)
    bench.quiet = False
    await bench.pass_s(1)
    bench.quiet = True
    await bench.pass_s(9.5)
    assert bench.measurement.begun == 0
    await bench.pass_s(1.5)
    assert (bench.state, bench.measurement.begun) == (TuningState.MEASURING, 1)
    assert bench.watch.standing.share_done == 0.5
    bench.measurement.finish.set()
    await bench.pass_s(1)
    async with asyncio.timeout(5):
        await running
    assert bench.engine.tunings == [TUNING]
    assert bench.watch.standing.share_done == 1.0
    assert bench.state is TuningState.KNOWN


async def test_a_request_breaks_it_off_at_once_and_it_goes_on_later(bench: Bench) -> None:
    running = asyncio.create_task(bench.watch.run())
    await bench.pass_s(14)
    assert bench.state is TuningState.MEASURING
    bench.quiet = False
    await bench.pass_s(0.5)
    assert (bench.measurement.broken_off, bench.state) == (1, TuningState.WAITING)
    bench.quiet = True
    bench.measurement.finish.set()
    await bench.pass_s(16)
    async with asyncio.timeout(5):
        await running
    assert (bench.measurement.begun, bench.engine.tunings) == (2, [TUNING])


async def test_what_fails_is_tried_again_and_given_up_in_the_end(bench: Bench) -> None:
    bench.measurement.failures = [StartFailed("refused") for _ in range(3)]
    running = asyncio.create_task(bench.watch.run())
    await bench.pass_s(60)
    async with asyncio.timeout(5):
        await running
    assert (bench.measurement.begun, bench.engine.tunings) == (3, [])
    assert bench.state is TuningState.FAILED


async def test_what_is_known_is_not_measured(tmp_path: Path) -> None:
    bench = Bench(tmp_path, known=True)
    await bench.watch.run()
    assert (bench.state, bench.measurement.begun) == (TuningState.KNOWN, 0)


async def test_a_watch_that_ends_leaves_no_measurement_running(bench: Bench) -> None:
    running = asyncio.create_task(bench.watch.run())
    await bench.pass_s(14)
    assert bench.state is TuningState.MEASURING
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert bench.measurement.broken_off == 1
