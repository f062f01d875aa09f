"""Follows the level with the engine's threads: a swap once a new share has been asked for over a dwell.

Decoding waits for memory more than for arithmetic, so that fewer threads cost little speed and spare their heat. A
swap costs a start and the prompt cache; a level that comes and goes within the dwell is not worth one.
"""

from __future__ import annotations

from collections.abc import Callable

from edge.runtime.port import Engine
from shared import logs
from shared.clock import Clock
from shared.errors import IsthmusError

_PAUSE_S = 0.25


class ThreadsFollower:
    """Keeps the share of threads that `wanted_ratio` asks for, while `has_room` says that two engines fit."""

    def __init__(
        self,
        engine: Engine,
        wanted_ratio: Callable[[], float],
        *,
        has_room: Callable[[], bool],
        clock: Clock,
        dwell_s: float,
    ) -> None:
        self._engine = engine
        self._wanted_ratio = wanted_ratio
        self._has_room = has_room
        self._clock = clock
        self._dwell_ms = round(dwell_s * 1000)
        self._log = logs.get("thermal")
        self._in_force = 1.0
        self._wanted = 1.0
        self._since_ms = clock.now_ms()

    @property
    def ratio(self) -> float:
        """The share in force."""
        return self._in_force

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.step()
            await self._clock.sleep(min(_PAUSE_S, max(self._dwell_ms, 1) / 1000))

    async def step(self) -> None:
        """Swap if the time has come. One that fails is tried again a dwell later."""
        now_ms, wanted = self._clock.now_ms(), self._wanted_ratio()
        if wanted != self._wanted:
            self._wanted, self._since_ms = wanted, now_ms
        if wanted == self._in_force or now_ms - self._since_ms < self._dwell_ms or not self._has_room():
            return
        try:
            changes = self._engine.would_change_threads(wanted)
            await self._engine.use_threads(wanted)
        except IsthmusError as error:
            self._log.warning("threads_swap_failed", code=error.code)
            self._since_ms = now_ms
            return
        if changes:
            self._log.info("thermal_threads", before_ratio=self._in_force, after_ratio=wanted)
        self._in_force = wanted
