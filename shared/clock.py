"""Time as a port, so that policies take numbers and tests turn the hands."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock and a way to wait on it."""

    def now_ms(self) -> int:
        """Milliseconds on a monotonic clock with an arbitrary origin."""

    def unix_s(self) -> float:
        """Wall-clock seconds, for records that people read; never compared between machines."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` on this clock."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def unix_s(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
