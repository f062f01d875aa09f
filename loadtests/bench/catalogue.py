"""Which benchmarks there are, what each one needs of a machine, and how it is cut short where time is."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge.packages.store import PackageStore
from edge.settings import EdgeSettings
from shared.errors import IsthmusError
from shared.settings import load


@dataclass(frozen=True, slots=True)
class Bench:
    """One module of `loadtests.bench`. `short` are arguments that make it quick, at the price of figures that only show
    that it runs; `needs` are keys of `NEEDS`."""

    about: str
    short: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


BENCHES: Mapping[str, Bench] = {
    "decide": Bench(
        "One routing decision; the ratio is to writing down as many candidates, or to copying the columns once."
    ),
    "scanner": Bench("The privacy scanner, by size of text, and what it finds."),
    "audit": Bench("Checking an audit log; the ratio is to reading it and taking the code of each line."),
    "router": Bench(
        "The whole router; ratios are to a bare proxy before the same backend in the same run.",
        short=("--seconds", "0.5", "--rounds", "2", "--slow-streams", "200"),
    ),
    "tracing": Bench(
        "The router with traces; ratios are to the same router without.",
        short=("--seconds", "0.5", "--rounds", "2"),
        needs=("otel",),
    ),
    "fleet": Bench(
        "Routers that follow a fleet in one Redis, against their bounds.",
        short=("--devices", "1000", "--seconds", "5"),
        needs=("redis",),
    ),
    "self": Bench(
        "The load generator: its ceiling on this machine, and how late it stamps an arrival.",
        short=("--duration-s", "2"),
    ),
    "simulated_day": Bench(
        "A day of 100,000 devices under four policies, against five minutes and 6 GiB.", short=("--devices", "5000")
    ),
    "autoscale": Bench("The scaling policy on traces of load, simulated; ratios are to fixed replicas."),
    "edge_overhead": Bench(
        "What the edge agent adds to a token; the ratio is to the bare engine.",
        short=("--rounds", "5"),
        needs=("model",),
    ),
    "engine_changes": Bench(
        "Restart and swap of the engine, against its first start and the same stream undisturbed.",
        short=("--kills", "2", "--swaps", "1"),
        needs=("model",),
    ),
    "stall": Bench(
        "How long another client's long prompt holds up a stream; the ratio is to the same stream alone.",
        short=("--rounds", "1"),
        needs=("model",),
    ),
    "speculation": Bench(
        "Speculation; ratios are to plain decoding.", short=("--tokens", "32", "--rounds", "1"), needs=("model",)
    ),
    "prediction": Bench(
        "Predicted against measured speed and memory of the engine.", short=("--only", "memory"), needs=("model",)
    ),
    "cloud": Bench(
        "The cloud tier; ratios are to the bare vLLM server with the same arguments.",
        short=("--rounds", "1", "--clients", "1", "--output", "16"),
        needs=("model", "cloud"),
    ),
}


def what_is_missing(bench: Bench) -> str | None:
    """Why the benchmark cannot run here, or None."""
    return next((reason for name in bench.needs if (reason := NEEDS[name]()) is not None), None)


def _no_model() -> str | None:
    settings = load(EdgeSettings, "edge", None)
    try:
        PackageStore(settings.store_dir).current(settings.model)
    except IsthmusError:
        return f"the model {settings.model} is not installed (isthmus edge pull)"
    return None


def _no_module(name: str, extra: str) -> str | None:
    return None if importlib.util.find_spec(name) is not None else f"{extra} is not installed"


def _no_program(name: str) -> str | None:
    return None if shutil.which(name) is not None else f"{name} is not installed"


NEEDS: Mapping[str, Callable[[], str | None]] = {
    "model": _no_model,
    "redis": lambda: _no_program("redis-server"),
    "otel": lambda: _no_module("opentelemetry", "the extra [otel]"),
    "cloud": lambda: _no_module("vllm", "the cloud tier"),
}
"""Each says what is missing, or None."""
