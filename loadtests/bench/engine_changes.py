"""Measures what a crash and a swap of the engine cost: time until it serves again, and gaps in a running stream.

    python -m loadtests.bench.engine_changes [--kills 20] [--swaps 10]

A restart is compared with the first start of the same engine in the same run; the longest gap between two tokens of a
stream during a swap with the longest gap of the same stream when nothing happens.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import orjson
import typer
import uvloop

from edge.planning import plan_for
from edge.runtime.port import EngineState, EngineStatus
from edge.runtime.session import engine_session
from edge.runtime.supervisor import SupervisedEngine
from edge.settings import EdgeSettings
from shared import logs
from shared.clock import SystemClock
from shared.settings import load

READY_LIMIT_S = 2.0
_STORY = {"prompt": "Once upon a time", "n_predict": 400, "ignore_eos": True, "temperature": 0, "stream": True}


async def _restarts_s(engine: SupervisedEngine, kills: int) -> list[float]:
    """Seconds from each kill until the next process is proven by a token."""
    ready = asyncio.Event()

    def listen(status: EngineStatus) -> None:
        if status.state is EngineState.READY:
            ready.set()

    engine.subscribe(listen)
    took: list[float] = []
    for _ in range(kills):
        ready.clear()
        pid = engine.status.pid
        if pid is None:
            raise RuntimeError("the engine does not run")
        began_s = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        await ready.wait()
        took.append(time.perf_counter() - began_s)
    return took


async def _longest_gap_ms(engine: SupervisedEngine, *, swap: bool) -> float:
    """The longest time between two tokens of one stream, from its tenth token on."""
    arrivals: list[float] = []
    with engine.using() as connection:
        async with engine_session(connection) as session, session.post("/completion", json=_STORY) as response:
            swapping: asyncio.Task[None] | None = None
            async for line in response.content:
                if line.startswith(b"data: "):
                    arrivals.append(time.perf_counter())
                if swap and swapping is None and len(arrivals) == 20:
                    swapping = asyncio.create_task(engine.swap(engine.plan))
            if swapping is not None:
                await swapping
    return max((b - a) * 1000 for a, b in pairwise(arrivals[10:]))


async def measure(kills: int, swaps: int) -> dict[str, object]:
    """First start, restarts and gaps."""
    logs.configure(level="critical")
    settings = load(EdgeSettings, "edge", context_tokens=2048, thermal={"roots": []})
    plan = await asyncio.to_thread(plan_for, settings)
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        engine = SupervisedEngine(plan, clock=SystemClock(), run_dir=Path(folder))
        try:
            began_s = time.perf_counter()
            await engine.start()
            first_s = time.perf_counter() - began_s
            gaps = [(await _longest_gap_ms(engine, swap=False), await _longest_gap_ms(engine, swap=True))
                    for _ in range(swaps)]  # fmt: skip
            restarts_s = await _restarts_s(engine, kills)
        finally:
            await engine.stop()
    quiet_ms, swapped_ms = (median(each) for each in zip(*gaps, strict=True))
    return {
        "first_start_s": round(first_s, 3),
        "restart_s": {"median": round(median(restarts_s), 3), "longest": round(max(restarts_s), 3)},
        "restart_to_first_start": round(median(restarts_s) / first_s, 3),
        "longest_gap_ms": {"quiet": round(quiet_ms, 1), "swap": round(swapped_ms, 1)},
        "gap_swap_to_quiet": round(swapped_ms / quiet_ms, 2),
        "within": {"restart": max(restarts_s) <= READY_LIMIT_S},
    }


def main(kills: int = 20, swaps: int = 5) -> None:
    """Print the figures as JSON."""
    print(orjson.dumps(uvloop.run(measure(kills, swaps)), option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
