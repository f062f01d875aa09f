"""The loop that watches memory and keeps the engine on the step that fits: reading → ladder → swap.

Refusing and restricting happen with the reading that asks for it; the swap follows in a task of its own, so that a
shortage that grows while an engine starts is still seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from edge.memory import pressure
from edge.memory.pressure import Pressure, PressureRules, Step, StepState
from edge.runtime.port import Engine
from edge.service.bounded_read import BoundedRead
from shared import logs
from shared.clock import Clock
from shared.errors import CapacityError, NotReady, StartFailed, TrustError


class MemoryCritical(CapacityError):
    """The device has no memory for new work; what runs goes on."""

    default_code = "memory_critical"


class MemoryWatch:
    """Keeps the step in force; `on_change` is called in the event loop after every change of step."""

    def __init__(
        self,
        read: Callable[[], Pressure],
        engine: Engine,
        rules: PressureRules,
        *,
        clock: Clock,
        interval_s: float,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._read = BoundedRead(read)
        self._engine = engine
        self._rules = rules
        self._clock = clock
        self._interval_s = interval_s
        self._on_change = on_change
        self._log = logs.get("memory")
        self._steps = engine.steps()
        self._state = StepState()
        self._in_force = self._steps[0]
        self._reading = Pressure(None)
        self._stepped = asyncio.Event()

    @property
    def rung(self) -> int:
        """Steps below the full plan that are asked for now."""
        return self._state.rung

    @property
    def step(self) -> Step:
        """The step that is asked for now."""
        return self._steps[self._state.rung]

    @property
    def admits(self) -> bool:
        """Whether new work is taken."""
        return self.step.admits

    @property
    def available_bytes(self) -> int | None:
        """Memory that can be had, as last read."""
        return self._reading.available_bytes

    @property
    def has_room(self) -> bool:
        """Whether nothing was given back and a second engine fits beside the first: the condition of every swap that
        could as well wait."""
        return self._state.rung == 0 and self.may_overlap

    @property
    def may_overlap(self) -> bool:
        """Whether a second engine like the one in force may be started beside it; where nothing is known, yes."""
        available_bytes = self.available_bytes
        return available_bytes is None or pressure.can_overlap(self._in_force, available_bytes, self._rules)

    def critical(self) -> MemoryCritical:
        """The refusal of a device that is short of memory."""
        return MemoryCritical(
            "The device has no memory for new work.", retry_after_s=max(1, round(self._rules.dwell_ms / 1000))
        )

    def observe(self, reading: Pressure) -> None:
        """Take in one reading."""
        self._reading = reading
        before = self._state
        self._state = pressure.decide(before, reading, self._steps, self._clock.now_ms(), self._rules)
        if self._state.rung == before.rung:
            return
        self._log.warning(
            "memory_step",
            before=before.rung,
            after=self._state.rung,
            slots=self.step.slots,
            context_tokens=self.step.context_tokens,
            admits=self.admits,
            available_bytes=reading.available_bytes,
            stall_percent=reading.some_stall_percent,
        )
        self._stepped.set()
        self._on_change()

    async def run(self) -> None:
        """Watch, and follow with the engine, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._follow())

    async def _watch(self) -> None:
        while True:
            self.observe(await self._sample())
            await self._clock.sleep(self._interval_s)

    async def _follow(self) -> None:
        """Bring the engine to the step in force, again and again."""
        while True:
            await self._stepped.wait()
            self._stepped.clear()
            overlap = True
            while _shape(self.step) != _shape(self._in_force):
                if await self._swapped(self.step, overlap=overlap):
                    overlap = True
                else:
                    overlap = False  # next time without a second engine beside the first
                    await self._clock.sleep(self._rules.settle_ms / 1000)

    async def _swapped(self, step: Step, *, overlap: bool) -> bool:
        """Swap to `step`; False when it failed. A step up that fails is taken back: it needs its dwell again."""
        up = step.private_bytes > self._in_force.private_bytes
        overlap = overlap and pressure.can_overlap(step, self._reading.available_bytes, self._rules)
        try:
            await self._engine.take_step(step, overlap=overlap)
        except (NotReady, StartFailed, TrustError) as error:
            self._log.warning("memory_swap_failed", code=error.code, up=up)
            if up and self.step == step:
                self._state = replace(
                    self._state, rung=self._state.rung + 1, changed_ms=self._clock.now_ms(), calm_since_ms=None
                )
                self._on_change()
            return False
        self._in_force = step
        return True

    async def _sample(self) -> Pressure:
        """One reading; a tree that does not answer says nothing."""
        return await self._read() or Pressure(None)


def _shape(step: Step) -> tuple[int, int]:
    return step.slots, step.context_tokens
