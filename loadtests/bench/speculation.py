"""Measures what speculation is worth on this device: plain, each kind forced, and the controller, on four prompt sets.

    python -m loadtests.bench.speculation [--tokens 96] [--rounds 3]

One engine after another serves the same prompts; figures are output tokens a second, the best of the rounds, because
whatever else runs on the machine only ever takes away. The controller is the agent's own, with its waits shortened; it
is measured once it has settled, in the mode that it has chosen, with the figures of that mode in this run. Each kind's
greedy answers are compared with the plain ones: where they differ, the two best tokens must have been a near tie.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import typer
import uvloop

from edge.planning import plan_for
from edge.runtime.session import engine_session
from edge.runtime.supervisor import SupervisedEngine
from edge.scheduling.greedy import Step, divergence
from edge.scheduling.speculation import SpeculationMode, SpeculationPolicy
from edge.service.rates import Timings
from edge.service.request_kind import kind_of
from edge.service.speculation_watch import SpeculationWatch
from edge.settings import EdgeSettings
from shared import logs
from shared.clock import SystemClock
from shared.fleet import ThermalLevel
from shared.settings import load

KINDS = (SpeculationMode.NGRAM_MAP_K, SpeculationMode.NGRAM_MAP_K4V, SpeculationMode.NGRAM_SIMPLE)
TOLERANCE_RATIO = 0.97
_SETTLING_ANSWERS = 40
_STATIONS = "\n".join(f"{n}. The station number {n} on the northern line is called Stop {n}." for n in range(1, 13))
_CODE = "\n".join(
    f"def area_{name}(width: float, height: float) -> float:\n    return width * height * {factor}\n"
    for name, factor in (("square", 1), ("triangle", 0.5), ("ellipse", 0.785), ("pyramid", 0.333))
)
_JSON = orjson.dumps([{"id": n, "name": f"item {n}", "price": n * 10, "stock": True} for n in range(1, 9)]).decode()
PROMPTS: Mapping[str, Sequence[str]] = {
    "copy": (f"Repeat this list word for word:\n{_STATIONS}", f"Copy the following text exactly:\n{_STATIONS}"),
    "code": (f"Rename width to w in this code and print all of it:\n```python\n{_CODE}```",
             f"Add a docstring to each function and print all of it:\n```python\n{_CODE}```"),
    "prose": ("Tell a story about a baker in a small town.", "Describe the sea in autumn."),
    "json": (f"Print this JSON again, by price:\n{_JSON}", f"Print this JSON with stock set to false:\n{_JSON}"),
}  # fmt: skip


def _body(prompt: str, tokens: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"messages": messages, "temperature": 0, "max_tokens": tokens, "ignore_eos": True, "cache_prompt": True}


async def _answered(engine: SupervisedEngine, prompt: str, tokens: int) -> Timings:
    with engine.using() as connection:
        async with (
            engine_session(connection) as session,
            session.post("/v1/chat/completions", json=_body(prompt, tokens)) as response,
        ):
            timings = Timings.of((await response.json()).get("timings"))
    if timings is None or timings.decode_tokens_per_s is None:
        raise RuntimeError("the engine says nothing about its speed")
    return timings


async def _speed(engine: SupervisedEngine, prompts: Sequence[str], tokens: int, rounds: int) -> float:
    """Tokens a second over all of the set, the best of the rounds for each prompt."""
    took_s = 0.0
    for prompt in prompts:
        rates = [(await _answered(engine, prompt, tokens)).decode_tokens_per_s or 0.0 for _ in range(rounds)]
        took_s += 1 / max(rates)
    return len(prompts) / took_s


async def _steps(engine: SupervisedEngine, prompt: str, tokens: int) -> list[Step]:
    """The greedy answer token by token, with how far the second best lay behind."""
    body = {**_body(prompt, tokens), "logprobs": True, "top_logprobs": 2}
    with engine.using() as connection:
        async with engine_session(connection) as session, session.post("/v1/chat/completions", json=body) as response:
            content = (await response.json())["choices"][0]["logprobs"]["content"]
    return [Step(each["token"], _gap(each["top_logprobs"])) for each in content]


def _gap(best: Sequence[Mapping[str, Any]]) -> float:
    return float(best[0]["logprob"] - best[1]["logprob"]) if len(best) > 1 else float("inf")


async def _settled(engine: SupervisedEngine, prompts: Sequence[str], tokens: int) -> SpeculationMode:
    """The mode that the controller chooses for these prompts alone."""
    policy = SpeculationPolicy(candidates=KINDS, dwell_ms=0, retry_ms=3_600_000)
    watch = SpeculationWatch(
        engine,
        policy,
        clock=SystemClock(),
        level=lambda: ThermalLevel.NOMINAL,
        has_room=lambda: True,
        alone=contextlib.nullcontext,
        interval_s=1.0,
    )
    await engine.speculate(SpeculationMode.OFF)
    for number in range(_SETTLING_ANSWERS):
        prompt = prompts[number % len(prompts)]
        timings = await _answered(engine, prompt, tokens)
        watch.record(kind_of(_body(prompt, tokens)), watch.mode, timings)
        await watch.step()
    return watch.mode


async def measure(tokens: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Tokens a second by prompt set and mode, and what the controller made of it."""
    logs.configure(level="critical")
    settings = load(EdgeSettings, "edge", context_tokens=2048, thermal={"roots": []})
    plan = await asyncio.to_thread(plan_for, settings)
    speeds: dict[str, dict[str, Any]] = {name: {} for name in PROMPTS}
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        engine = SupervisedEngine(plan, clock=SystemClock(), run_dir=Path(folder))
        try:
            await engine.start()
            plain: dict[str, list[Step]] = {}
            for mode in (SpeculationMode.OFF, *KINDS):
                await engine.speculate(mode)
                for name, prompts in PROMPTS.items():
                    steps = await _steps(engine, prompts[0], tokens)
                    found = divergence(plain.setdefault(name, steps), [step.token for step in steps])
                    if found is not None:
                        speeds[name].setdefault("diverged", {})[mode.value] = asdict(found) | {"allowed": found.allowed}
                    speeds[name][mode.value] = round(await _speed(engine, prompts, tokens, rounds), 1)
            for name, prompts in PROMPTS.items():
                speeds[name]["chosen"] = (await _settled(engine, prompts, tokens)).value
        finally:
            await engine.stop()
    return speeds


def main(tokens: int = 96, rounds: int = 3) -> None:
    """Print speeds and ratios as JSON."""
    speeds = uvloop.run(measure(tokens, rounds))
    for found in speeds.values():
        figures = {name: value for name, value in found.items() if name not in ("chosen", "diverged")}
        best = max(figures.values())
        found["best_to_plain"] = round(best / figures["off"], 3)
        found["controller_to_plain"] = round(figures[found["chosen"]] / figures["off"], 3)
        found["controller_to_best"] = round(figures[found["chosen"]] / best, 3)
        found["within"] = found["controller_to_best"] >= TOLERANCE_RATIO
    print(orjson.dumps(speeds, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
