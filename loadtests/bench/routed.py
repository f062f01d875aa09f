"""The whole router in front of one backend, as a process for benchmarks: everything on, files in a folder of its own.

python -m loadtests.bench.routed --to http://127.0.0.1:9000
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from router.app import build_router
from router.serve import settle_memory
from router.settings import AuditSettings, CloudSettings, RouterSettings, RouterTracingSettings
from shared import logs
from shared.clock import SystemClock
from shared.http.binding import bind
from shared.http.lifecycle import serve

_MOST_STREAMS = 4096
"""More than any benchmark has at once: what a backend is spared by default is not what is measured here."""


async def _serve(settings: RouterSettings) -> None:
    listener = bind("127.0.0.1", 0, setting="port")
    router = await build_router(settings, SystemClock())
    settle_memory()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await serve(router.application, listener, router.lifecycle, component="router", drain_limit_s=0)


def main(
    to: Annotated[str, typer.Option(help="Address of the backend.")],
    traces: Annotated[str | None, typer.Option(help="Endpoint that spans go to.")] = None,
    traces_ratio: Annotated[float, typer.Option(help="Share of traces that is recorded.")] = 1.0,
) -> None:
    """Serve on 127.0.0.1 until a signal."""
    logs.configure(level="warning")
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        audit = AuditSettings(dir=Path(folder) / "audit", key_file=Path(folder) / "key")
        tracing = RouterTracingSettings(endpoint=traces, sample_ratio=traces_ratio)
        settings = RouterSettings(
            clouds=(CloudSettings(id="instant", url=to, max_in_flight=_MOST_STREAMS),), audit=audit, tracing=tracing
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings))


if __name__ == "__main__":
    typer.run(main)
