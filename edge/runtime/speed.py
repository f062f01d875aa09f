"""Measures how fast the real engine reads prompts and writes answers at given contexts and numbers of threads.

Each time is the best of several short repetitions: what else runs on the machine only ever adds. Two clocks are read:
the wall clock, and the processor time that the engine's process got, divided by its threads. On an idle machine the two
agree (its threads compute, or spin at a barrier); on a busy one the second leaves out most of the waiting for a core.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import aiohttp
import psutil

from edge.memory.kv import KvType, aligned_tokens
from edge.packages.package import Package, check_contents, check_file, opened_package
from edge.runtime.child import EngineChild, StartFailed, private_folder
from edge.runtime.launch import LAUNCHES
from edge.runtime.options import EngineOptions
from edge.runtime.session import engine_session
from shared.errors import SettingsError
from shared.errors import StartFailed as EngineStartFailed

BATCH_TOKENS = 128
UBATCH_TOKENS = 63
_DECODE_TOKENS = 32
_DECODE_REPETITIONS = 3
_LEAST_PROCESSOR_S = 0.1
_SPARE_TOKENS = 256
_START_LIMIT_S = 300.0
_STOP_GRACE_S = 3.0
_FIRST_TOKEN = 3
_DISTINCT_TOKENS = 2000
"""Prompts are made of so many ids from there up, as far as the vocabulary goes."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One context at one number of threads: seconds of the whole prompt, and of one token after it."""

    threads: int
    context_tokens: int
    prefill_s: float
    decode_s: float
    prefill_wall_s: float
    decode_wall_s: float

    def better(self, other: Speed | None) -> Speed:
        """The best of both, time by time."""
        if other is None:
            return self
        return Speed(
            self.threads,
            self.context_tokens,
            min(self.prefill_s, other.prefill_s),
            min(self.decode_s, other.decode_s),
            min(self.prefill_wall_s, other.prefill_wall_s),
            min(self.decode_wall_s, other.decode_wall_s),
        )


def middle_of(speeds: Sequence[Speed]) -> Speed:
    """The median of each time of measurements at one context and one number of threads."""
    return Speed(
        speeds[0].threads,
        speeds[0].context_tokens,
        median(each.prefill_s for each in speeds),
        median(each.decode_s for each in speeds),
        median(each.prefill_wall_s for each in speeds),
        median(each.decode_wall_s for each in speeds),
    )


def most_context_tokens(trained_context_tokens: int) -> int:
    """The longest context that can be measured: what is written after it has to fit too."""
    return trained_context_tokens - _DECODE_TOKENS - 1


class SpeedBench:
    """A running engine that is asked for times. Built by `speed_bench`."""

    def __init__(
        self, session: aiohttp.ClientSession, process: psutil.Process, threads: int, vocabulary_tokens: int
    ) -> None:
        self._session = session
        self._process = process
        self._threads = threads
        self._distinct_tokens = max(1, min(_DISTINCT_TOKENS, vocabulary_tokens - _FIRST_TOKEN))
        self._prompts = 0

    async def speed(self, context_tokens: int, repetitions: int) -> Speed:
        """The best of `repetitions` at this context, each with a prompt that the engine has not seen."""
        best: Speed | None = None
        for _ in range(repetitions):
            best = (await self._once(context_tokens)).better(best)
        assert best is not None  # noqa: S101 - there is at least one repetition
        return best

    async def _once(self, context_tokens: int) -> Speed:
        self._prompts += 1
        # The first token differs, so nothing of an earlier prompt is reused.
        first, distinct = self._prompts, self._distinct_tokens
        prompt = [(first * 31 + 7 * at * (at + first)) % distinct + _FIRST_TOKEN for at in range(context_tokens)]
        prefill_s, prefill_wall_s, _ = await self._timed(prompt, 1)
        # The same prompt again is in the cache but for its last token: what is timed are steps of one token.
        steps = [await self._timed(prompt, _DECODE_TOKENS) for _ in range(_DECODE_REPETITIONS)]
        return Speed(
            threads=self._threads,
            context_tokens=context_tokens,
            prefill_s=prefill_s,
            decode_s=min(got_s / tokens for got_s, _, tokens in steps),
            prefill_wall_s=prefill_wall_s,
            decode_wall_s=min(wall_s / tokens for _, wall_s, tokens in steps),
        )

    async def _timed(self, prompt: list[int], tokens: int) -> tuple[float, float, int]:
        """Seconds by processor and by wall clock, and how many tokens came."""
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": True}
        wall, processor = time.perf_counter(), self._processor_s()
        async with self._session.post("/completion", json=body) as response:
            answer = await response.json()
            if response.status != 200:
                raise EngineStartFailed(f"The engine answered a prompt with status {response.status}.")
        wall_s = time.perf_counter() - wall
        got_s = (self._processor_s() - processor) / self._threads
        # Processor time is counted in hundredths of a second: where it cannot tell, the wall clock does.
        seconds = min(wall_s, got_s) if got_s >= _LEAST_PROCESSOR_S else wall_s
        return seconds, wall_s, int(answer["tokens_predicted"])

    def _processor_s(self) -> float:
        used = self._process.cpu_times()
        return float(used.user + used.system)


@asynccontextmanager
async def speed_bench(
    package: Package, run_dir: Path, *, threads: int, context_tokens: int, kv_type: KvType = KvType.F16
) -> AsyncIterator[SpeedBench]:
    """An engine for `package` on `threads` threads, with room for `context_tokens`.

    Raises:
        TrustError: the package is not what it was.
        SettingsError: it is no package of the engine that is measured.
        StartFailed: the engine did not start or broke off.
        OSError: there can be no folder for the engine's socket.
    """
    if package.manifest.model.format != "gguf":
        raise SettingsError("Only the engine of GGUF packages is measured.", param="model")
    options = EngineOptions(
        model_alias=package.name,
        context_tokens=aligned_tokens(context_tokens + _SPARE_TOKENS),
        slots=1,
        threads=threads,
        threads_batch=threads,
        kv_type=kv_type,
        batch_tokens=BATCH_TOKENS,
        ubatch_tokens=UBATCH_TOKENS,
    )
    with opened_package(package) as files:
        check_contents(package, files)
        for file in package.manifest.files:
            check_file(file, files.descriptor(file.path))
        child = await EngineChild.spawn(LAUNCHES["gguf"], options, files, private_folder(run_dir))
        try:
            await child.prove(_START_LIMIT_S)
            async with engine_session(child.connection) as session:
                vocabulary_tokens = package.manifest.geometry.vocabulary_tokens
                yield SpeedBench(session, psutil.Process(child.pid), threads, vocabulary_tokens)
        except StartFailed as failure:
            raise EngineStartFailed(failure.reason) from None
        except (aiohttp.ClientError, psutil.Error):
            raise EngineStartFailed("The engine broke off a measurement.") from None
        finally:
            await child.stop(_STOP_GRACE_S)
