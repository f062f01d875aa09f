"""Has the engine's best threads and batch measured while nobody wants it, and swaps to them once they are known.

Measuring takes the machine for some seconds, so it waits until nothing was asked for a while, is broken off by the
first request, and goes on from there later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from edge.runtime.port import Engine
from edge.scheduling.tuning import Tuning
from shared import logs
from shared.clock import Clock
from shared.errors import IsthmusError

_PAUSE_S = 0.25
_FAILURES_LIMIT = 3


class TuningState(StrEnum):
    """Where it stands."""

    OFF = "off"
    """Nothing is to be measured: by the settings, or because the engine knows no choices."""
    KNOWN = "known"
    """Measured before, or now; in force."""
    WAITING = "waiting"
    MEASURING = "measuring"
    FAILED = "failed"


class Measurement(Protocol):
    """What can be run, broken off, and run on."""

    @property
    def share_done(self) -> float:
        """Between 0 and 1."""

    async def run(self) -> Tuning:
        """Measure what is missing, keep the choice for later starts, return it.

        Raises:
            IsthmusError: it could not be measured.
        """


@dataclass(frozen=True, slots=True)
class Standing:
    """For whoever looks. `share_done` of the measurements."""

    state: TuningState
    share_done: float


class TuningWatch:
    """Runs `measurement` once. `quiet` says whether nobody wants the engine, and the device can spare the work."""

    def __init__(
        self,
        engine: Engine,
        measurement: Measurement | None,
        *,
        known: bool,
        quiet: Callable[[], bool],
        settle_s: float,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._measurement = measurement
        self._quiet = quiet
        self._settle_ms = round(settle_s * 1000)
        self._clock = clock
        self._log = logs.get("tuning")
        self._state = TuningState.KNOWN if known else TuningState.OFF if measurement is None else TuningState.WAITING

    @property
    def standing(self) -> Standing:
        """Now."""
        done = 1.0 if self._state is TuningState.KNOWN else 0.0
        return Standing(self._state, done if self._measurement is None else max(done, self._measurement.share_done))

    async def run(self) -> None:
        """Until it is measured and in force, or has failed for good."""
        if self._measurement is None:
            return
        failures = 0
        while self._state is not TuningState.KNOWN and failures < _FAILURES_LIMIT:
            await self._until_settled()
            try:
                await self._attempt(self._measurement)
            except IsthmusError as error:
                failures += 1
                self._log.warning("tuning_failed", code=error.code)
        if self._state is not TuningState.KNOWN:
            self._state = TuningState.FAILED

    async def _until_settled(self) -> None:
        self._state = TuningState.WAITING
        since_ms = self._clock.now_ms()
        while self._clock.now_ms() - since_ms < self._settle_ms or not self._quiet():
            await self._clock.sleep(_PAUSE_S)
            if not self._quiet():
                since_ms = self._clock.now_ms()

    async def _attempt(self, measurement: Measurement) -> None:
        self._state = TuningState.MEASURING
        measuring = asyncio.ensure_future(measurement.run())
        try:
            while not measuring.done() and self._quiet():
                pause = asyncio.ensure_future(self._clock.sleep(_PAUSE_S))
                await asyncio.wait({measuring, pause}, return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
            if not measuring.done():
                return
            tuning = measuring.result()
        finally:
            measuring.cancel()
            await asyncio.gather(measuring, return_exceptions=True)
        await self._engine.tune(tuning)
        self._log.info(
            "tuned", threads=tuning.threads, threads_prefill=tuning.threads_batch, spin=tuning.spin,
            batch_tokens=tuning.batch_tokens, stall_s=round(tuning.stall_s, 3),
        )  # fmt: skip
        self._state = TuningState.KNOWN
