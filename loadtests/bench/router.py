"""Measures what the router costs: direct, through a bare proxy, and through the router, in turns.

    python -m loadtests.bench.router [--clients 16] [--seconds 2] [--rounds 5]

Reports medians over the rounds: answers a second, milliseconds to the first content, and processor time of the
process under test per request. The ratios compare with the bare proxy of the same run.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import median

import aiohttp
import orjson
import psutil
import typer
import uvloop

from loadtests.bench.process import started
from shared.testing.answers import MODEL

_PATH = "/v1/chat/completions"
_TEXT = "Explain in two sentences how a suspension bridge carries its load. " * 8


@dataclass(frozen=True, slots=True)
class Sample:
    """One round at one address."""

    requests_per_s: float
    first_ms: float
    cpu_us: float


def _body(*, stream: bool) -> bytes:
    asked = {"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": _TEXT}]}
    return orjson.dumps(asked)


async def _client(session: aiohttp.ClientSession, url: str, body: bytes, until_s: float, firsts: list[float]) -> None:
    headers = {"Content-Type": "application/json"}
    while time.perf_counter() < until_s:
        began_s = time.perf_counter()
        async with session.post(url, data=body, headers=headers) as response:
            await response.content.readany()
            firsts.append((time.perf_counter() - began_s) * 1000)
            await response.read()
            if response.status != 200:
                raise RuntimeError(f"status {response.status}")


async def _sample(
    address: str, process: psutil.Process | None, *, stream: bool, clients: int, seconds: float
) -> Sample:
    firsts: list[float] = []
    body = _body(stream=stream)
    before_s = _cpu_s(process)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        began_s = time.perf_counter()
        until_s = began_s + seconds
        await asyncio.gather(*(_client(session, address + _PATH, body, until_s, firsts) for _ in range(clients)))
        took_s = time.perf_counter() - began_s
    cpu_s = _cpu_s(process) - before_s
    return Sample(len(firsts) / took_s, median(firsts), cpu_s / len(firsts) * 1e6)


def _cpu_s(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


def _child(known: set[int]) -> psutil.Process:
    """The process that was started last."""
    [child] = [each for each in psutil.Process().children() if each.pid not in known]
    known.add(child.pid)
    return child


def measure(*, clients: int, seconds: float, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Medians by mode (`whole`, `stream`) and by path (`direct`, `floor`, `router`)."""
    known: set[int] = set()
    samples: dict[tuple[str, str], list[Sample]] = {}
    with started("loadtests.bench.instant") as backend:
        _child(known)
        with started("loadtests.bench.proxy_floor", "--to", backend) as floor:
            floor_process = _child(known)
            with started("loadtests.bench.routed", "--to", backend) as routed:
                routes = (
                    ("direct", backend, None),
                    ("floor", floor, floor_process),
                    ("router", routed, _child(known)),
                )
                for number in range(rounds + 1):
                    for stream in (False, True):
                        for name, address, process in routes:
                            run = _sample(address, process, stream=stream, clients=clients, seconds=seconds)
                            sample = uvloop.run(run)
                            if number > 0:  # the first round warms up
                                samples.setdefault(("stream" if stream else "whole", name), []).append(sample)
    return {mode: {name: _medians(samples[mode, name]) for name, _, _ in routes} for mode in ("whole", "stream")}


def _medians(samples: list[Sample]) -> dict[str, float]:
    return {
        "requests_per_s": round(median(s.requests_per_s for s in samples), 1),
        "first_ms": round(median(s.first_ms for s in samples), 2),
        "cpu_us": round(median(s.cpu_us for s in samples), 1),
    }


def main(clients: int = 16, seconds: float = 2.0, rounds: int = 5) -> None:
    """Print the medians and the ratios to the bare proxy as JSON."""
    result = measure(clients=clients, seconds=seconds, rounds=rounds)
    ratios = {
        mode: {
            "requests": round(found["router"]["requests_per_s"] / found["floor"]["requests_per_s"], 3),
            "cpu": round(found["router"]["cpu_us"] / found["floor"]["cpu_us"], 2),
            "cpu_added_us": round(found["router"]["cpu_us"] - found["floor"]["cpu_us"], 1),
        }
        for mode, found in result.items()
    }
    print(orjson.dumps({"medians": result, "router_to_floor": ratios}, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
