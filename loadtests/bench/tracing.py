"""Measures what traces cost the router: off, on for one new trace in a hundred, and on for all, in turns of one run.

    python -m loadtests.bench.tracing [--seconds 2] [--rounds 5]

The floor is the same router without traces. Needs the extra otel; the collector takes whatever comes and looks at none
of it, so that what is measured is the router alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from statistics import median
from typing import Annotated

import orjson
import psutil
import typer
import uvloop
from aiohttp import web

from loadtests.bench.process import started
from loadtests.bench.router import Sample, Way, child_of_last_start, pin, sample

WAYS = {"off": (), "sampled": ("--traces-ratio", "0.01"), "all": ("--traces-ratio", "1")}
_CLIENTS = 32


def measured(*, seconds: float, rounds: int) -> dict[tuple[str, str], list[Sample]]:
    """Samples by mode and way, one of each a round; the first round warms up and does not count."""
    known: set[int] = set()
    samples: dict[tuple[str, str], list[Sample]] = {}
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(started("loadtests.bench.wire_backend", "--tokens", "32"))
        pin(child_of_last_start(known), 1)
        sink = stack.enter_context(started("loadtests.bench.tracing", "--collector"))
        pin(child_of_last_start(known), 1)
        ways = [stack.enter_context(_router(name, backend, sink, known)) for name in WAYS]
        pin(psutil.Process(), 1)
        for number in range(rounds + 1):
            for mode in ("whole", "stream"):
                for way in ways if number % 2 else ways[::-1]:
                    took = sample(way, stream=mode == "stream", clients=_CLIENTS, seconds=seconds)
                    if number > 0:
                        samples.setdefault((mode, way.name), []).append(took)
    return samples


@contextlib.contextmanager
def _router(name: str, backend: str, sink: str, known: set[int]) -> Iterator[Way]:
    traces = ("--traces", f"{sink}/v1/traces", *WAYS[name]) if WAYS[name] else ()
    with started("loadtests.bench.routed", "--to", backend, *traces) as address:
        pin(process := child_of_last_start(known), 0)
        yield Way(name, address, process)


def compared(samples: dict[tuple[str, str], list[Sample]]) -> dict[str, dict[str, float]]:
    """Rate and processor time of each way against the router without traces, the median over the rounds."""
    found: dict[str, dict[str, float]] = {}
    for (mode, name), of in samples.items():
        pairs = list(zip(of, samples[mode, "off"], strict=True))
        found[f"{mode}, {name}"] = {
            "per_s": round(median(s.per_s for s in of), 1),
            "cpu_us": round(median(s.cpu_us for s in of), 1),
            "rate_ratio": round(median(s.per_s / floor.per_s for s, floor in pairs), 3),
            "cpu_ratio": round(median(s.cpu_us / floor.cpu_us for s, floor in pairs), 3),
        }
    return found


async def _collect() -> None:
    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(content_type="application/x-protobuf")

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


def main(
    seconds: float = 2.0,
    rounds: int = 5,
    collector: Annotated[bool, typer.Option("--collector", help="Be the collector instead.")] = False,
) -> None:
    """Print rates, processor time of an answer, and their ratios to the router without traces, as JSON."""
    if collector:
        uvloop.run(_collect())
        return
    result = compared(measured(seconds=seconds, rounds=rounds))
    print(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
