"""An edge agent as a process for benchmarks: the installed default model, no router, a run folder of its own, and a
sensor that always shows the same cool device. Without one its heat would be unknown, and the engine held back.

python -m loadtests.bench.agent [--slots 1]
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import typer
import uvloop

from edge.app import Agent
from edge.planning import plan_for
from edge.runtime.supervisor import SupervisedEngine
from edge.settings import EdgeSettings
from shared import logs
from shared.clock import SystemClock
from shared.http.binding import bind
from shared.http.lifecycle import serve
from shared.settings import load
from shared.testing.heat import SensorTree


async def _serve(settings: EdgeSettings) -> None:
    listener = bind("127.0.0.1", 0, setting="edge.port")
    port = listener.getsockname()[1]
    engine = SupervisedEngine(
        await asyncio.to_thread(plan_for, settings), clock=SystemClock(), run_dir=settings.engine_dir
    )
    agent = Agent(settings, engine, clock=SystemClock(), port=port)
    async with agent.running():
        print(f"http://127.0.0.1:{port}", flush=True)
        await serve(agent.web, listener, agent.lifecycle, component="edge", drain_limit_s=0)


def main(slots: int = 1, context_tokens: int = 2048) -> None:
    """Serve on 127.0.0.1 until a signal."""
    logs.configure(level="error")
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        sensors = Path(folder) / "sensors"
        SensorTree(sensors).show("40000")
        settings = load(
            EdgeSettings,
            "edge",
            port=0,
            slots=slots,
            context_tokens=context_tokens,
            run_dir=Path(folder),
            thermal={"roots": [sensors], "stuck_busy_s": 0},
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings))


if __name__ == "__main__":
    typer.run(main)
