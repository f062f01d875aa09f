"""Measures for a moment how fast an engine process reads and writes, alone and beside a busy process.

Each measurement is bounded: an engine that has collapsed is left after a second or two, with what it has done by then.
Times are the engine's own: on a busy machine, what has been computed apart arrives together.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from edge.runtime.child import EngineChild
from edge.runtime.session import engine_session
from edge.scheduling.tuning import STALL_PROMPT_TOKENS, Batch, Speeds
from shared.errors import StartFailed

_BUSY_PROGRAM = Path(__file__).with_name("busy_process.py")
_PROMPT_TOKENS = 252
_OUTPUT_TOKENS = 24
_PHASE_LIMIT_S = 2.5
_STALL_LIMIT_S = 10.0
_REPETITIONS = 2
_DISTINCT_TOKENS = 1000
_FIRST_TOKEN = 3
"""Prompts are made of ids from here up, as far as the vocabulary goes; none of them ends a text."""


class EngineTrials:
    """A proven engine process that is asked for its speed. No prompt comes twice: nothing is read from its cache.

    `context_tokens` of its one slot bound the prompts, `vocabulary_tokens` the ids in them.
    """

    def __init__(self, child: EngineChild, *, context_tokens: int, vocabulary_tokens: int) -> None:
        self._child = child
        self._room_tokens = context_tokens - _OUTPUT_TOKENS - 1
        self._distinct_tokens = max(1, min(_DISTINCT_TOKENS, vocabulary_tokens - _FIRST_TOKEN))
        self._prompts = 0

    async def speeds(self) -> Speeds:
        """The best of some repetitions: whatever else runs only ever takes away.

        Raises:
            StartFailed: the engine broke off.
        """
        with _as_failure():
            async with engine_session(self._child.connection) as session:
                reads = [await self._reads(session, _PROMPT_TOKENS, _PHASE_LIMIT_S) for _ in range(_REPETITIONS)]
                writes = [await self._writes(session) for _ in range(_REPETITIONS)]
        rates = [sum(batch.tokens for batch in read) / sum(batch.seconds for batch in read) for read in reads]
        return Speeds(decode_tokens_per_s=max(writes), prefill_tokens_per_s=max(rates))

    async def batches(self) -> list[Batch]:
        """The batches of a long prompt, as far as it was read in time.

        Raises:
            StartFailed: the engine broke off.
        """
        with _as_failure():
            async with engine_session(self._child.connection) as session:
                return await self._reads(session, STALL_PROMPT_TOKENS, _STALL_LIMIT_S)

    async def _reads(self, session: aiohttp.ClientSession, prompt_tokens: int, limit_s: float) -> list[Batch]:
        prompt = self._prompt(prompt_tokens)
        body = {"prompt": prompt, "n_predict": 1, "return_progress": True}
        found: list[Batch] = []
        past, before_ms = 0, 0.0
        async with contextlib.aclosing(_events(session, body)) as events:
            async for event in events:
                done, now_ms = _read(event, len(prompt))
                if done > past and now_ms > before_ms:
                    found.append(Batch(past, done - past, (now_ms - before_ms) / 1000))
                    past, before_ms = done, now_ms
                if done >= len(prompt) or now_ms > 1000 * limit_s:
                    break
        if not found:
            raise StartFailed("The engine answered a trial with nothing.")
        return found

    async def _writes(self, session: aiohttp.ClientSession) -> float:
        body = {"prompt": self._prompt(_FIRST_TOKEN), "n_predict": _OUTPUT_TOKENS}
        tokens_per_s = 0.0
        async with contextlib.aclosing(_events(session, body)) as events:
            async for event in events:
                timings = event["timings"]
                if timings["predicted_n"] > 1 and timings["predicted_ms"] > 0:
                    tokens_per_s = (
                        1000 * (timings["predicted_n"] - 1) / timings["predicted_ms"]
                    )  # the first came with the prompt
                if timings["predicted_n"] > 1 and timings["predicted_ms"] > 1000 * _PHASE_LIMIT_S:
                    break
        if tokens_per_s <= 0:
            raise StartFailed("The engine answered a trial with nothing.")
        return tokens_per_s

    def _prompt(self, tokens: int) -> list[int]:
        """As many, or what the context holds beside an answer."""
        self._prompts += 1
        first, distinct = self._prompts, self._distinct_tokens
        return [
            (31 * first + 7 * at * (at + first)) % distinct + _FIRST_TOKEN
            for at in range(min(tokens, self._room_tokens))
        ]


@contextlib.asynccontextmanager
async def busy_neighbour() -> AsyncIterator[None]:
    """One process that never rests, for as long as the block runs.

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(_BUSY_PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _events(session: aiohttp.ClientSession, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
    """Leaving it early closes the connection, and the engine stops."""
    fixed = {"stream": True, "temperature": 0, "ignore_eos": True, "cache_prompt": False, "timings_per_token": True}
    async with session.post("/completion", json={**body, **fixed}) as response:
        if response.status != 200:
            raise StartFailed(f"The engine answered a trial with status {response.status}.")
        async for line in response.content:
            if line.startswith(b"data: {"):
                yield orjson.loads(line[6:])


def _read(event: dict[str, Any], prompt_tokens: int) -> tuple[int, float]:
    """Tokens of the prompt that were read, and after how many milliseconds; all of them, once there is an answer."""
    progress = event.get("prompt_progress")
    if isinstance(progress, dict):
        return int(progress["processed"]), float(progress["time_ms"])
    return prompt_tokens, float(event["timings"]["prompt_ms"])


@contextlib.contextmanager
def _as_failure() -> Any:
    try:
        yield
    except (aiohttp.ClientError, OSError, KeyError, ValueError):
        raise StartFailed("The engine broke off a trial.") from None
