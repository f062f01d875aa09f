"""Measures how long another client's long prompt holds up a running stream, through the agent.

    python -m loadtests.bench.stall [--rounds 5] [--prompt-tokens 1500]

One client streams; in the middle another one sends a prompt of that many tokens, which nobody has sent before. Printed
are the longest gap between two chunks of the stream while that prompt is read, the same without it, and their ratio.
The agent runs with what was measured for this device, if anything was (`isthmus edge schedule --calibrate`).
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from statistics import median
from typing import Any

import aiohttp
import orjson
import typer
import uvloop

from edge.scheduling.tuning import STALL_LIMIT_S, STALL_PROMPT_TOKENS
from loadtests.bench.process import started

_READY_LIMIT_S = 120.0
_CHUNKS_BEFORE = 20
_CHUNKS_QUIET = 60


async def _until_ready(session: aiohttp.ClientSession, agent: str) -> str:
    """The model's name, once it is served."""
    async with asyncio.timeout(_READY_LIMIT_S):
        while True:
            async with session.get(f"{agent}/readyz") as response:
                if response.status == 200:
                    break
            await asyncio.sleep(0.1)
    async with session.get(f"{agent}/v1/models") as response:
        return str((await response.json())["data"][0]["id"])


async def _gap_s(session: aiohttp.ClientSession, agent: str, model: str, prompt: list[int] | None) -> float:
    """The longest gap of one stream, from its twentieth chunk on, until `prompt` is read; without one, for a while."""
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": 1500, "temperature": 0, "stream": True}
    arrivals: list[float] = []
    reading: asyncio.Task[None] | None = None
    async with session.post(f"{agent}/v1/completions", json=body) as stream:
        async for line in stream.content:
            if not line.startswith(b"data: {"):
                continue
            arrivals.append(time.perf_counter())
            if prompt is not None and reading is None and len(arrivals) == _CHUNKS_BEFORE:
                reading = asyncio.create_task(_read(session, agent, model, prompt))
            if reading.done() if reading is not None else len(arrivals) == _CHUNKS_BEFORE + _CHUNKS_QUIET:
                break
    if reading is not None:
        await reading
    return max(b - a for a, b in pairwise(arrivals[_CHUNKS_BEFORE - 1 :]))


async def _read(session: aiohttp.ClientSession, agent: str, model: str, prompt: list[int]) -> None:
    body = {"model": model, "prompt": prompt, "max_tokens": 1}
    async with session.post(f"{agent}/v1/completions", json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"status {response.status}")
        await response.read()


async def measure(agent: str, rounds: int, prompt_tokens: int) -> dict[str, Any]:
    """Gaps with and without the prompt, in turns."""
    quiet: list[float] = []
    stalled: list[float] = []
    async with aiohttp.ClientSession() as session:
        model = await _until_ready(session, agent)
        for number in range(rounds):
            prompt = [(31 * number + 7 * at * (at + number)) % 1000 + 3 for at in range(prompt_tokens)]
            quiet.append(await _gap_s(session, agent, model, None))
            stalled.append(await _gap_s(session, agent, model, prompt))
    return {
        "prompt_tokens": prompt_tokens,
        "longest_gap_s": {"quiet": round(median(quiet), 3), "stalled": round(median(stalled), 3)},
        "longest_of_all_s": round(max(stalled), 3),
        "stalled_to_quiet": round(median(stalled) / median(quiet), 1),
        "stalled_to_limit": round(max(stalled) / STALL_LIMIT_S, 2),
        "within": max(stalled) <= STALL_LIMIT_S,
    }


def main(rounds: int = 5, prompt_tokens: int = STALL_PROMPT_TOKENS) -> None:
    """Print the figures as JSON."""
    with started("loadtests.bench.agent", "--slots", "2") as agent:
        figures = uvloop.run(measure(agent, rounds, prompt_tokens))
    print(orjson.dumps(figures, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
