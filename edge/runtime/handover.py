"""The meeting point of a swap: who asks for another plan leaves it here, the loop takes it at a safe moment."""

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
