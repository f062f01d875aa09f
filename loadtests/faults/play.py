"""Plays the faults of a run at their time, keeps when each began and ended, and looks at the fleet meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtests.faults.acts import Act, HeatRamp
from loadtests.faults.stack import Stack
from loadtests.samples import began_file
from loadtests.settings import FaultName
from shared.errors import IsthmusError

_LOOK_S = 0.5
_POLL_S = 0.05


@dataclass(slots=True)
class Band:
    """A fault as it was: seconds of the run, and what kept it from being brought about or taken back."""

    name: str
    from_s: float
    to_s: float
    problem: str | None = None


@dataclass(slots=True)
class Seen:
    """What happened around the requests of a run."""

    bands: list[Band] = field(default_factory=list)
    looks: list[dict[str, Any]] = field(default_factory=list)
    """One row a backend and look: second of the run, id, tier, level, state, load."""


def windows(names: Sequence[FaultName], *, from_s: float, to_s: float) -> list[tuple[FaultName, float, float]]:
    """The time of each fault: one after the other, in equal parts of the span, with a tenth of each part as a pause."""
    part_s = (to_s - from_s) / max(1, len(names))
    pause_s = 0.1 * part_s if len(names) > 1 else 0.0
    starts = [from_s + place * part_s for place in range(len(names))]
    return [(name, start_s, start_s + part_s - pause_s) for name, start_s in zip(names, starts, strict=True)]


class Play:
    """One run's faults and looks, from the moment the generator says that it has begun."""

    def __init__(self, stack: Stack, samples: Path) -> None:
        self._stack = stack
        self._began_file = began_file(samples)
        self._began_s = 0.0
        self.seen = Seen()

    async def run(self, acts: Sequence[tuple[FaultName, float, float, Act]]) -> None:
        """Until cancelled; every fault that was begun is taken back, also then."""
        await self._until_begun()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_on())
            for name, from_s, to_s, act in acts:
                group.create_task(self._suffer(name, from_s, to_s, act))

    async def leave(self, acts: Sequence[tuple[FaultName, float, float, Act]]) -> None:
        """What is done after the run."""
        for _, _, _, act in acts:
            if isinstance(act, HeatRamp):
                await act.leave()

    @property
    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    async def _until_begun(self) -> None:
        while True:
            try:
                if text := self._began_file.read_text(encoding="ascii"):
                    self._began_s = float(text)
                    return
            except FileNotFoundError:
                pass
            await asyncio.sleep(_POLL_S)

    async def _suffer(self, name: FaultName, from_s: float, to_s: float, act: Act) -> None:
        await asyncio.sleep(max(0.0, from_s - self._now_s))
        band = Band(name, self._now_s, to_s)
        self.seen.bands.append(band)
        try:
            await act.begin(to_s - self._now_s)
            await asyncio.sleep(max(0.0, to_s - self._now_s))
        except IsthmusError as error:
            band.problem = f"could not be brought about: {error}"
        finally:
            # Shielded: a run that is interrupted leaves no stack behind that is still ill.
            await asyncio.shield(self._take_back(band, act))

    async def _take_back(self, band: Band, act: Act) -> None:
        try:
            await act.end()
        except IsthmusError as error:
            band.problem = band.problem or f"could not be taken back: {error}"
        band.to_s = self._now_s

    async def _look_on(self) -> None:
        while True:
            at_s = round(self._now_s, 2)
            for backend in await self._stack.backends() or ():
                kept = {name: backend.get(name) for name in _LOOKED_AT}
                self.seen.looks.append({"at_s": at_s, **kept})
            await asyncio.sleep(_LOOK_S)


_LOOKED_AT = (
    "backend_id", "tier", "level", "state", "breaker", "temperature_c", "slots_total", "slots_busy", "queued",
    "queue_limit", "in_flight",
)  # fmt: skip
