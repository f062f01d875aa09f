"""Measures what speculation is worth on this device: plain, each kind forced, and the controller, on four prompt sets.

    python -m loadtests.bench.speculation [--tokens 64] [--rounds 3]

In each round one engine after another serves the same prompts, plain decoding before and after each kind: a kind's
figure is its speed over that of the plain decoding around it, the median over the rounds, because machines change
their speed by more than what is looked for here. The controller is the agent's own, with its waits shortened; what it
is worth is the figure of the mode in which it has settled. Each kind's greedy answers are compared with the plain ones:
where they differ, the two best tokens must have been a near tie.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
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

CANDIDATES = SpeculationPolicy().candidates
KINDS = (*CANDIDATES, SpeculationMode.NGRAM_MAP_K)
TOLERANCE_RATIO = 0.97
COPY_HEAVY = frozenset({"copy", "code"})
"""Sets on which the controller must beat plain decoding."""
_SETTLING_ANSWERS = 24
_STATIONS = "\n".join(f"{n}. The station number {n} on the northern line is called Stop {n}." for n in range(1, 13))
_ROWS = "\n".join(f"{n:02d};sensor-{n:02d};ok;{20 + n}.5" for n in range(1, 25))
_CODE = "\n".join(
    f"def area_{name}(width: float, height: float) -> float:\n    return width * height * {factor}\n"
    for name, factor in (("square", 1), ("triangle", 0.5), ("ellipse", 0.785), ("pyramid", 0.333))
)
_JSON = orjson.dumps([{"id": n, "name": f"item {n}", "price": n * 10, "stock": True} for n in range(1, 9)]).decode()
PROMPTS: Mapping[str, Sequence[str]] = {
    "copy": (f"Repeat these lines exactly as they are:\n{_ROWS}", f"Copy the following text exactly:\n{_STATIONS}"),
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


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a set was answered, in output tokens a second, and how many tokens were proposed and accepted."""

    tokens_per_s: float
    drafted: int
    accepted: int


async def _pace(engine: SupervisedEngine, prompts: Sequence[str], tokens: int) -> Pace:
    """Over all prompts, once each of them was asked before: the better of two answers, because whatever else runs on
    the machine only ever takes away."""
    found: list[Timings] = []
    for prompt in prompts:
        await _answered(engine, prompt, tokens)
        pair = [await _answered(engine, prompt, tokens) for _ in range(2)]
        found.append(max(pair, key=lambda each: each.decode_tokens_per_s or 0.0))
    took_s = sum(1 / (each.decode_tokens_per_s or 1e-9) for each in found)
    return Pace(
        len(prompts) / took_s, sum(each.drafted_tokens for each in found), sum(each.accepted_tokens for each in found)
    )


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
    policy = SpeculationPolicy(candidates=CANDIDATES, dwell_ms=0, retry_ms=3_600_000)
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


async def _paces(engine: SupervisedEngine, mode: SpeculationMode, tokens: int) -> dict[str, Pace]:
    """The pace of each set in one mode."""
    await engine.speculate(mode)
    return {name: await _pace(engine, prompts, tokens) for name, prompts in PROMPTS.items()}


async def _rounds(engine: SupervisedEngine, tokens: int, rounds: int) -> dict[str, dict[str, Any]]:
    """By prompt set: plain tokens a second, and of each kind its gain over plain decoding and what it proposed."""
    gains: dict[tuple[str, SpeculationMode], list[float]] = {}
    drafts: dict[tuple[str, SpeculationMode], list[Pace]] = {}
    plain: dict[str, list[float]] = {name: [] for name in PROMPTS}
    before = await _paces(engine, SpeculationMode.OFF, tokens)
    for _ in range(rounds):
        for mode in KINDS:
            own = await _paces(engine, mode, tokens)
            after = await _paces(engine, SpeculationMode.OFF, tokens)
            for name in PROMPTS:
                around = (before[name].tokens_per_s + after[name].tokens_per_s) / 2
                gains.setdefault((name, mode), []).append(own[name].tokens_per_s / around)
                drafts.setdefault((name, mode), []).append(own[name])
                plain[name].append(around)
            before = after
    return {
        name: {
            "plain_tokens_per_s": round(median(plain[name]), 1),
            "to_plain": {mode.value: round(median(gains[name, mode]), 3) for mode in KINDS},
            "rounds": {mode.value: [round(gain, 3) for gain in gains[name, mode]] for mode in KINDS},
            "acceptance": {mode.value: _acceptance(drafts[name, mode]) for mode in KINDS},
        }
        for name in PROMPTS
    }


def _acceptance(paces: Sequence[Pace]) -> float | None:
    """Accepted over proposed tokens; None where none were proposed."""
    drafted = sum(pace.drafted for pace in paces)
    return round(sum(pace.accepted for pace in paces) / drafted, 3) if drafted else None


async def _divergences(engine: SupervisedEngine, tokens: int) -> dict[str, dict[str, Any]]:
    """By prompt set and kind: where the greedy answer departs from the plain one, and whether that is allowed."""
    found: dict[str, dict[str, Any]] = {name: {} for name in PROMPTS}
    plain: dict[str, list[Step]] = {}
    for mode in (SpeculationMode.OFF, *KINDS):
        await engine.speculate(mode)
        for name, prompts in PROMPTS.items():
            steps = await _steps(engine, prompts[0], tokens)
            parted = divergence(plain.setdefault(name, steps), [step.token for step in steps])
            if parted is not None:
                found[name][mode.value] = asdict(parted) | {"allowed": parted.allowed}
    return found


async def measure(tokens: int, rounds: int) -> dict[str, dict[str, Any]]:
    """What each kind and the controller are worth, by prompt set.

    Raises:
        RuntimeError: the engine of this device knows no speculation, or none of the kinds proposed anything.
    """
    logs.configure(level="critical")
    settings = load(EdgeSettings, "edge", context_tokens=2048, thermal={"roots": []})
    plan = await asyncio.to_thread(plan_for, settings)
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        engine = SupervisedEngine(plan, clock=SystemClock(), run_dir=Path(folder))
        try:
            await engine.start()
            if not engine.speculates:
                raise RuntimeError("the engine of this device does not speculate")
            found = await _rounds(engine, tokens, rounds)
            for name, parted in (await _divergences(engine, tokens)).items():
                found[name]["diverged"] = parted
            for name, prompts in PROMPTS.items():
                found[name]["chosen"] = (await _settled(engine, prompts, tokens)).value
        finally:
            await engine.stop()
    if not any(rate for each in found.values() for rate in each["acceptance"].values()):
        raise RuntimeError("no kind of speculation proposed a token: nothing was compared")
    return found


def _judged(found: Mapping[str, Any]) -> dict[str, Any]:
    """How the mode in which the controller settled compares with the best one, from the gains of each round.

    `contradicted` says that the best mode was not better than the chosen one in every round, so that more rounds may
    tell otherwise; the bound stays. What nothing was accepted of decodes plainly: its gain is the noise here.
    """
    plain = [1.0] * len(next(iter(found["rounds"].values())))
    real = {kind: gains for kind, gains in found["rounds"].items() if found["acceptance"][kind]}
    modes = {SpeculationMode.OFF.value: plain, **real}
    chosen = modes.get(found["chosen"], plain)
    over_chosen = {mode: [a / b for a, b in zip(gains, chosen, strict=True)] for mode, gains in modes.items()}
    best = max(over_chosen, key=lambda mode: median(over_chosen[mode]))
    ratio = 1 / max(1.0, median(over_chosen[best]))
    idle = [gain for kind, gains in found["rounds"].items() if kind not in real for gain in gains]
    return {
        "best": best,
        "controller_to_plain": round(median(chosen), 3),
        "controller_to_best": round(ratio, 3),
        "noise_ratio": round(max(abs(gain - 1) for gain in idle), 3) if idle else None,
        "contradicted": ratio < 1 and min(over_chosen[best]) <= 1,
        "within": ratio >= TOLERANCE_RATIO,
    }


def main(tokens: int = 64, rounds: int = 3) -> None:
    """Print gains as JSON."""
    found = uvloop.run(measure(tokens, rounds))
    for name, each in found.items():
        each |= _judged(each)
        each["within"] = each["within"] and (name not in COPY_HEAVY or each["controller_to_plain"] > 1)
    print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
