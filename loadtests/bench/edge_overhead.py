"""Measures what the edge agent adds to its engine: the same requests to a bare engine and through the agent, in turns.

    python -m loadtests.bench.edge_overhead [--rounds 90] [--tokens 48]

Bare means: an engine process of the same plan, asked over its own socket. Both see the same prompts in the same order,
each of them new. What the agent adds is the median over the rounds of the difference (or ratio) within a round, with
its 95 % confidence interval; the agent may add 3 ms to the first token and 3 % to each later one. A single first token
varies by some tens of milliseconds from round to round, more on a slow machine: further rounds of short answers follow
until the interval of the first token is narrow enough to be held against its limit, or there were too many of them.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import orjson
import typer
import uvloop

from edge.planning import plan_for
from edge.runtime.session import engine_session
from edge.runtime.supervisor import SupervisedEngine
from edge.settings import EdgeSettings
from loadtests.bench.process import started
from shared import logs
from shared.clock import SystemClock
from shared.settings import load

_PATH = "/v1/chat/completions"
_READY_LIMIT_S = 120.0
_SHORT_TOKENS = 12
_MOST_SHORT_ROUNDS = 7
"""For each round of whole answers."""
FIRST_TOKEN_LIMIT_MS = 3.0
TOKEN_LIMIT_RATIO = 1.03


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer: milliseconds to the first content, and between its tokens."""

    first_ms: float
    token_ms: float


def _body(model: str, number: int, tokens: int) -> dict[str, Any]:
    text = f"Question {number}: how does a suspension bridge carry its load? Answer at length."
    return {
        "model": model,
        "stream": True,
        "temperature": 0,
        "max_tokens": tokens,
        "messages": [{"role": "user", "content": text}],
    }


async def _sample(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> Sample:
    began_s = time.perf_counter()
    async with session.post(url + _PATH, json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"status {response.status}")
        arrivals = [time.perf_counter() async for line in response.content if _has_content(line)]
    if len(arrivals) < 8:
        raise RuntimeError("the answer is too short to be measured")
    return Sample((arrivals[0] - began_s) * 1000, (arrivals[-1] - arrivals[0]) * 1000 / (len(arrivals) - 1))


def _has_content(line: bytes) -> bool:
    if not line.startswith(b"data: {"):
        return False
    choices = orjson.loads(line[6:]).get("choices")
    return bool(choices and choices[0]["delta"].get("content"))


@asynccontextmanager
async def _bare(settings: EdgeSettings, folder: Path) -> AsyncIterator[tuple[aiohttp.ClientSession, str, str]]:
    """Session, address and model of an engine without an agent."""
    plan = await asyncio.to_thread(plan_for, settings)
    engine = SupervisedEngine(plan, clock=SystemClock(), run_dir=folder)
    try:
        await engine.start()
        connection = engine.connection()
        async with engine_session(connection) as session:
            yield session, connection.base_url, plan.package.name
    finally:
        await engine.stop()


async def _until_ready(session: aiohttp.ClientSession, agent: str) -> None:
    async with asyncio.timeout(_READY_LIMIT_S):
        while True:
            async with session.get(f"{agent}/readyz") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.1)


class _Pairs:
    """Asks bare engine and agent the same, one after another, and each first as often as the other."""

    def __init__(self, model: str, bare: tuple[aiohttp.ClientSession, str], agent: tuple[aiohttp.ClientSession, str]):
        self._model = model
        self._asked = (("bare", *bare), ("agent", *agent))
        self._number = 0

    async def next(self, tokens: int) -> dict[str, Sample]:
        body = _body(self._model, self._number, tokens)
        self._number += 1
        order = self._asked if self._number % 2 else reversed(self._asked)
        return {name: await _sample(session, url, body) for name, session, url in order}


async def measure(agent: str, *, rounds: int, tokens: int) -> tuple[list[dict[str, Sample]], list[dict[str, Sample]]]:
    """Pairs of samples by `bare` and `agent`: of answers of `tokens` tokens, and of short ones, which tell of the first
    token alone. The first pair warms up and does not count."""
    logs.configure(level="error")
    settings = load(EdgeSettings, "edge", context_tokens=2048, thermal={"roots": []})
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        async with aiohttp.ClientSession() as http, _bare(settings, Path(folder)) as (direct, address, model):
            await _until_ready(http, agent)
            pairs = _Pairs(model, (direct, address), (http, agent))
            await pairs.next(tokens)
            whole = [await pairs.next(tokens) for _ in range(rounds)]
            short: list[dict[str, Sample]] = []
            while len(short) < _MOST_SHORT_ROUNDS * rounds and not is_narrow(added_ms([*whole, *short])):
                short.append(await pairs.next(_SHORT_TOKENS))
    return whole, short


def added_ms(pairs: Sequence[dict[str, Sample]]) -> list[float]:
    """What the agent added to the first token of each pair."""
    return [pair["agent"].first_ms - pair["bare"].first_ms for pair in pairs]


def is_narrow(values: Sequence[float]) -> bool:
    """Whether the interval of the median is no wider than the limit that it is held against. Its width alone ends the
    measurement, never where it lies."""
    low, high = median_interval(values)
    return high - low <= FIRST_TOKEN_LIMIT_MS


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median of independent values, whatever their distribution: the values at the
    ranks n/2 - 0.98 sqrt(n) and 1 + n/2 + 0.98 sqrt(n), counted from 1 (Campbell and Gardner, BMJ 1988; 296: 1454)."""
    ordered, half, width = sorted(values), len(values) / 2, 0.98 * math.sqrt(len(values))
    low, high = round(half - width), round(1 + half + width)
    return ordered[max(low, 1) - 1], ordered[min(high, len(ordered)) - 1]


def main(rounds: int = 90, tokens: int = 48) -> None:
    """Print medians, what the agent adds, and whether both are within their limits, as JSON."""
    with started("loadtests.bench.agent") as agent:
        whole, short = uvloop.run(measure(agent, rounds=rounds, tokens=tokens))
    every = [*whole, *short]
    first = {name: median(pair[name].first_ms for pair in every) for name in ("bare", "agent")}
    token = {name: median(pair[name].token_ms for pair in whole) for name in ("bare", "agent")}
    differences_ms = added_ms(every)
    ratios = [pair["agent"].token_ms / pair["bare"].token_ms for pair in whole]
    added, ratio = median(differences_ms), median(ratios)
    result = {
        "rounds": {"whole": len(whole), "short": len(short)},
        "first_token_ms": {name: round(value, 2) for name, value in first.items()},
        "token_ms": {name: round(value, 3) for name, value in token.items()},
        "agent_to_bare": {
            "first_token_added_ms": round(added, 2),
            "first_token_added_ms_95": [round(bound, 2) for bound in median_interval(differences_ms)],
            "first_token_ratio": round(first["agent"] / first["bare"], 3),
            "token_ratio": round(ratio, 3),
            "token_ratio_95": [round(bound, 3) for bound in median_interval(ratios)],
        },
        "within": {
            "first_token": added <= FIRST_TOKEN_LIMIT_MS,
            "token": ratio <= TOKEN_LIMIT_RATIO,
        },
    }
    print(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
