"""A clock whose hands a test turns."""

from __future__ import annotations

import asyncio


class ManualClock:
    """Monotonic and wall time that move only by `advance`; sleepers wake in order of their time."""

    def __init__(self, now_ms: int = 1_000_000, unix_s: float = 1_700_000_000.0) -> None:
        self._now_ms = now_ms
        self._unix_s = unix_s
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def unix_s(self) -> float:
        return self._unix_s

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now_ms + int(seconds * 1000), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move the hands, waking each sleeper whose time has come and letting it run."""
        target = self._now_ms + int(seconds * 1000)
        while due := sorted((s for s in self._sleepers if s[0] <= target), key=lambda s: s[0]):
            at, future = due[0]
            self._sleepers.remove(due[0])
            self._unix_s += (at - self._now_ms) / 1000
            self._now_ms = max(at, self._now_ms)
            if not future.done():
                future.set_result(None)
            for _ in range(5):
                await asyncio.sleep(0)
        self._unix_s += (target - self._now_ms) / 1000
        self._now_ms = target
