"""Measures what the router costs: straight to a backend, through a bare proxy, and through the router, in turns.

    python -m loadtests.bench.router [--seconds 2] [--rounds 5] [--slow-streams 2000]

Everything of the router is on: scanner, decision, audit log, metrics. Router and proxy have one core each to
themselves while they are measured, clients and backend another one, where there are two. Each ratio compares router
and proxy of the same round; what is printed is the median over the rounds, and the lowest and the highest of them. The
figures beside it depend on the machine, the ratio hardly does.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from statistics import median, quantiles

import orjson
import psutil
import typer
import uvloop

from loadtests.bench.process import started
from loadtests.bench.wire_client import Load, ask_for, watch_streams
from shared.testing.answers import MODEL

PATH = "/v1/chat/completions"
_TEXT = "Explain in two sentences how a suspension bridge carries its load. " * 8
_MODES = ("whole", "stream")
_CLIENTS = (1, 32)
_SLOW_TOKENS, _SLOW_INTERVAL_MS = 8, 1000.0
GOALS = {
    "requests_ratio": 0.40,
    "streams_ratio": 0.70,
    "p50_added_ms": 0.30,
    "p99_added_ms": 1.0,
    "slow_memory_mb": 400.0,
    "slow_stall_ms": 100.0,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One run at one address: answers a second, their time to the end, and the processor time of each."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Way:
    """One address that is measured, and the process behind it (None: the backend itself)."""

    name: str
    address: str
    process: psutil.Process | None


def body(*, stream: bool) -> bytes:
    """The request that every client sends."""
    asked = {"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": _TEXT}]}
    return orjson.dumps(asked)


def child_of_last_start(known: set[int]) -> psutil.Process:
    """The process that was started last; `known` has those from before, and then this one too."""
    [child] = [each for each in psutil.Process().children() if each.pid not in known]
    known.add(child.pid)
    return child


def pin(process: psutil.Process, core: int) -> None:
    """Keep all threads of a process on one core, where there are two."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        for thread in process.threads():
            os.sched_setaffinity(thread.id, {cores[core % len(cores)]})


def sample(way: Way, *, stream: bool, clients: int, seconds: float) -> Sample:
    """Ask one address for so long."""
    before_s = _cpu_s(way.process)
    load: Load = uvloop.run(ask_for(way.address, PATH, body(stream=stream), clients=clients, seconds=seconds))
    used_s, times = _cpu_s(way.process) - before_s, load.answer_ms
    p99 = quantiles(times, n=100)[98] if len(times) > 1 else times[0]
    return Sample(load.per_s, median(times), p99, used_s / len(times) * 1e6)


def _cpu_s(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


Samples = dict[tuple[str, int, str], list[Sample]]


def speed(*, seconds: float, rounds: int, tokens: int = 32) -> Samples:
    """Samples by mode, clients and way, one of each a round; the first round warms up and does not count."""
    known: set[int] = set()
    samples: Samples = {}
    with started("loadtests.bench.wire_backend", "--tokens", str(tokens)) as backend:
        pin(child_of_last_start(known), 1)
        with started("loadtests.bench.proxy_floor", "--to", backend) as floor:
            pin(floor_process := child_of_last_start(known), 0)
            with started("loadtests.bench.routed", "--to", backend) as routed:
                pin(router_process := child_of_last_start(known), 0)
                pin(psutil.Process(), 1)
                ways = (
                    Way("direct", backend, None),
                    Way("proxy", floor, floor_process),
                    Way("router", routed, router_process),
                )
                for number in range(rounds + 1):
                    for mode in _MODES:
                        for clients in _CLIENTS:
                            for way in ways if number % 2 else ways[::-1]:
                                took_s = seconds if number else seconds / 2
                                took = sample(way, stream=mode == "stream", clients=clients, seconds=took_s)
                                if number > 0:
                                    samples.setdefault((mode, clients, way.name), []).append(took)
    return samples


def slow(*, streams: int) -> dict[str, dict[str, float]]:
    """Many slow streams at once, by way: memory of the process (MB) at the end, longest delay of an event (ms)."""
    known: set[int] = set()
    found: dict[str, dict[str, float]] = {}
    timing = ("--tokens", str(_SLOW_TOKENS), "--interval-ms", str(_SLOW_INTERVAL_MS))
    with started("loadtests.bench.wire_backend", *timing) as backend:
        pin(child_of_last_start(known), 1)
        pin(psutil.Process(), 1)
        for name, module in (("proxy", "loadtests.bench.proxy_floor"), ("router", "loadtests.bench.routed")):
            with started(module, "--to", backend) as address:
                pin(process := child_of_last_start(known), 0)
                idle_mb = process.memory_info().rss / 1e6
                seen = uvloop.run(watch_streams(address, PATH, body(stream=True), streams=streams))
                late = sorted(seen.late_ms)
                found[name] = {
                    "whole_streams": seen.whole,
                    "idle_mb": round(idle_mb, 1),
                    "memory_mb": round(process.memory_info().rss / 1e6, 1),
                    "p50_late_ms": round(late[len(late) // 2], 1),
                    "longest_late_ms": round(late[-1], 1),
                }
    return found


def table(samples: Samples) -> dict[str, dict[str, dict[str, float]]]:
    """Medians by mode and clients, by way."""
    return {
        f"{mode}, {clients} clients" if clients > 1 else f"{mode}, 1 client": {
            way: {
                "per_s": round(median(s.per_s for s in samples[mode, clients, way]), 1),
                "p50_ms": round(median(s.p50_ms for s in samples[mode, clients, way]), 3),
                "p99_ms": round(median(s.p99_ms for s in samples[mode, clients, way]), 3),
                "cpu_us": round(median(s.cpu_us for s in samples[mode, clients, way]), 1),
            }
            for way in ("direct", "proxy", "router")
        }
        for mode in _MODES
        for clients in _CLIENTS
    }


def ratios(samples: Samples) -> dict[str, float]:
    """What the goals are about: the router against the proxy, round by round."""
    return {name: round(median(values), 3) for name, values in _by_round(samples).items()}


def spread(samples: Samples) -> dict[str, tuple[float, float]]:
    """The same of the lowest round and of the highest: how far `ratios` can be trusted."""
    return {name: (round(min(values), 3), round(max(values), 3)) for name, values in _by_round(samples).items()}


def _by_round(samples: Samples) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for mode, name in zip(_MODES, ("requests", "streams"), strict=True):
        for clients in _CLIENTS:
            pairs = list(zip(samples[mode, clients, "router"], samples[mode, clients, "proxy"], strict=True))
            found[f"{name}_ratio_{clients}"] = [r.per_s / p.per_s for r, p in pairs]
            found[f"{name}_cpu_ratio_{clients}"] = [p.cpu_us / r.cpu_us for r, p in pairs]
    pairs = list(zip(samples["whole", 1, "router"], samples["whole", 1, "proxy"], strict=True))
    found["p50_added_ms"] = [r.p50_ms - p.p50_ms for r, p in pairs]
    found["p99_added_ms"] = [r.p99_ms - p.p99_ms for r, p in pairs]
    return found


def _raise_open_files() -> None:
    """Each slow stream takes two sockets in the process under test; children inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(seconds: float = 2.0, rounds: int = 5, slow_streams: int = 2000) -> None:
    """Print medians, ratios to the bare proxy, and the goals they are held against, as JSON."""
    _raise_open_files()
    samples = speed(seconds=seconds, rounds=rounds)
    result: dict[str, object] = {
        "medians": table(samples),
        "router_to_proxy": ratios(samples),
        "lowest_and_highest_round": spread(samples),
        "goals": GOALS,
    }
    if slow_streams > 0:
        result["slow_streams"] = {"streams": slow_streams, **slow(streams=slow_streams)}
    print(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
