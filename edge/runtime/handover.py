"""Two stations of a swap: who asks for another plan leaves it with the handover, and what gave way retires."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from edge.runtime.child import EngineChild
from edge.runtime.plan import StaticPlan


@dataclass(slots=True)
class Successor:
    """What shall serve next. `child` is proven already; None: it is started once the present one is unused."""

    plan: StaticPlan
    child: EngineChild | None
    taken: asyncio.Event = field(default_factory=asyncio.Event)


class Handover:
    """Holds at most one successor."""

    def __init__(self) -> None:
        self._successor: Successor | None = None
        self._offered = asyncio.Event()

    @property
    def waiting(self) -> bool:
        """Whether there is a successor."""
        return self._successor is not None

    @property
    def has_child(self) -> bool:
        """Whether there is one whose process runs already."""
        return self._successor is not None and self._successor.child is not None

    def offer(self, successor: Successor) -> None:
        """Leave `successor` for the loop."""
        self._successor = successor
        self._offered.set()

    def take(self) -> Successor | None:
        """The successor, which is no longer on offer; None if there is none."""
        successor, self._successor = self._successor, None
        self._offered.clear()
        if successor is not None:
            successor.taken.set()
        return successor

    async def offered(self) -> None:
        """Wait until there is one."""
        await self._offered.wait()


class Retirement:
    """Processes that have given way: each ends once its last request has."""

    def __init__(self, *, drain_limit_s: float, stop_grace_s: float) -> None:
        self._drain_limit_s = drain_limit_s
        self._stop_grace_s = stop_grace_s
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """One for each; cancelled, it ends its process at once."""
        return tuple(self._tasks)

    def retire(self, child: EngineChild) -> None:
        """Let the requests of `child` go on to their end, then end it."""
        task = asyncio.create_task(self._drained(child))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drained(self, child: EngineChild) -> None:
        try:
            await child.unused(self._drain_limit_s)
        finally:
            await child.stop(self._stop_grace_s)
