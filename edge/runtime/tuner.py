"""Finds the threads, the spinning and the batch with which one package runs best here, with engines of its own.

It can be broken off at any moment: what was measured is kept, and the next call goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from edge.packages.formats.files import Files
from edge.packages.package import Package, check_contents, check_file, opened_package
from edge.runtime.child import EngineChild, StartFailed, socket_folder
from edge.runtime.launch import LAUNCHES
from edge.runtime.options import WHOLE_INPUT, EngineOptions
from edge.runtime.trials import EngineTrials, busy_neighbour
from edge.scheduling.speculation import SpeculationMode
from edge.scheduling.tuning import (
    Batch,
    Spin,
    Threads,
    Trial,
    Tuning,
    candidates,
    choose_batch,
    choose_threads,
)
from shared.errors import StartFailed as EngineStartFailed

_CONTEXT_TOKENS = 2048
_START_LIMIT_S = 60.0
_STOP_GRACE_S = 1.0
_TRIAL_LIMIT_S = 25.0
"""All of one engine: what takes longer has collapsed, and is out."""
_BATCHES_TOKENS = (128, 64, 32)
"""Sizes to choose from; each is cut to whole micro-batches."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: steps done, of so many."""

    done: int
    steps: int


class Tuner:
    """Measures `package`, which will be started with something like `basis`, on `cores` usable cores."""

    def __init__(self, package: Package, basis: EngineOptions, *, cores: int, run_dir: Path) -> None:
        self._package = package
        self._basis = replace(
            basis,
            slots=1,
            context_tokens=min(_CONTEXT_TOKENS, package.manifest.geometry.trained_context_tokens),
            speculation=SpeculationMode.OFF,
            sleep_after_s=0,
        )
        self._run_dir = run_dir
        self._candidates = candidates(cores)
        self._open = list(self._candidates)
        self._trials: list[Trial] = []
        self._batches: list[Batch] = []

    @property
    def progress(self) -> Progress:
        """So far."""
        tried = len(self._candidates) - len(self._open)
        return Progress(tried + (1 if self._batches else 0), len(self._candidates) + 1)

    async def run(self, listener: Callable[[Progress], None] = lambda _: None) -> Tuning:
        """Measure what is missing, and choose.

        Raises:
            TrustError: the package is not what it was.
            StartFailed: an engine did not start or broke off, or the device is too busy.
            SettingsError: there can be no folder for the engine's socket.
        """
        with opened_package(self._package) as files:
            check_contents(self._package, files)
            for file in self._package.manifest.files:
                check_file(file, files.descriptor(file.path))
            listener(self.progress)
            while self._open:
                with contextlib.suppress(TimeoutError):
                    self._trials.append(await self._trial(files, *self._open[0]))
                del self._open[0]
                listener(self.progress)
            if not self._trials:
                self._open = list(self._candidates)
                raise EngineStartFailed("This device is too busy to be measured now.")
            threads = choose_threads(self._trials)
            if not self._batches:
                self._batches = await self._prompt(files, threads)
                listener(self.progress)
        batch_tokens, stall_s = choose_batch(self._batches, self._sizes_tokens())
        return Tuning(threads.decode, threads.prefill, threads.spin, batch_tokens, stall_s)

    def _sizes_tokens(self) -> list[int]:
        """Batches to choose from. Where all of a text has to be read at once for its vector, there is no choice."""
        if self._basis.pooling in WHOLE_INPUT:
            return [self._basis.batch_tokens]
        ubatch = self._basis.ubatch_tokens
        return [size // ubatch * ubatch or size for size in _BATCHES_TOKENS]

    async def _trial(self, files: Files, threads: int, spin: Spin) -> Trial:
        async with asyncio.timeout(_TRIAL_LIMIT_S), self._engine(files, Threads(threads, threads, spin)) as trials:
            alone = await trials.speeds()
            async with busy_neighbour():
                return Trial(threads, spin, alone, await trials.speeds())

    async def _prompt(self, files: Files, threads: Threads) -> list[Batch]:
        async with self._engine(files, threads) as trials, busy_neighbour():
            return await trials.batches()

    @contextlib.asynccontextmanager
    async def _engine(self, files: Files, threads: Threads) -> AsyncIterator[EngineTrials]:
        options = replace(self._basis, threads=threads.decode, threads_batch=threads.prefill, spin=threads.spin)
        folder = socket_folder(self._run_dir)
        try:
            child = await EngineChild.spawn(LAUNCHES["gguf"], options, files, folder)
            try:
                await child.prove(_START_LIMIT_S)
                geometry = self._package.manifest.geometry
                yield EngineTrials(
                    child, context_tokens=options.context_tokens, vocabulary_tokens=geometry.vocabulary_tokens
                )
            finally:
                await child.stop(_STOP_GRACE_S)
        except StartFailed as failure:
            raise EngineStartFailed(failure.reason) from None
        except OSError as error:
            raise EngineStartFailed(f"A trial could not be started: {error.strerror}.") from None
