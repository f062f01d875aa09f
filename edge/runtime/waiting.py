"""Waits of the supervisor: for the first of several things, and for an engine that is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from edge.runtime.port import EngineState, EngineStatus

_SETTLED = frozenset({EngineState.READY, EngineState.FAILED, EngineState.STOPPED})


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of `waits` has; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_settled(status: EngineStatus, listeners: list[Callable[[EngineStatus], None]]) -> None:
    """Wait until an engine in `status` serves, or will not any more; `listeners` hear of its changes."""
    settled = asyncio.Event()

    def look(now: EngineStatus) -> None:
        if now.state in _SETTLED:
            settled.set()

    listeners.append(look)
    try:
        look(status)
        await settled.wait()
    finally:
        listeners.remove(look)
