"""Limits counted in this process: for one router, and for each of several while they do not hear of each other."""

from __future__ import annotations

from router.limits.port import Bound, Demand, Standing
from router.limits.window import Window
from shared.clock import Clock

_RETRY_MS = 1_000
"""When a request at the same time may end, nobody knows."""


class _Use:
    """What one key uses."""

    __slots__ = ("leases", "requests", "tokens")

    def __init__(self) -> None:
        self.requests = Window()
        self.tokens = Window()
        self.leases: set[str] = set()


class MemoryLimiter:
    """Counts by holder. Holders that use nothing any more are forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uses: dict[str, _Use] = {}

    async def take(self, demand: Demand) -> Standing:
        return self.taken(demand)

    async def settle(self, demand: Demand, standing: Standing, tokens: int) -> None:
        self.settled(demand, standing, tokens)

    def taken(self, demand: Demand) -> Standing:
        """As `take`."""
        use, now_ms, limits = self._use(demand.holder), self._clock.now_ms(), demand.limits
        refused, retry_ms = _verdict(use, demand, now_ms)
        if refused is None:
            if limits.requests_per_minute is not None:
                use.requests.add(1, now_ms)
            if limits.tokens_per_minute is not None:
                use.tokens.add(demand.tokens, now_ms)
            use.leases.add(demand.lease)
        return Standing(
            refused=refused,
            retry_ms=retry_ms,
            second=now_ms // 1000,
            used_requests=use.requests.used,
            reset_requests_ms=use.requests.reset_ms(now_ms),
            used_tokens=use.tokens.used,
            reset_tokens_ms=use.tokens.reset_ms(now_ms),
        )

    def settled(self, demand: Demand, standing: Standing, tokens: int) -> None:
        """As `settle`."""
        use, now_ms = self._use(demand.holder), self._clock.now_ms()
        use.leases.discard(demand.lease)
        if demand.limits.tokens_per_minute is not None:
            use.tokens.correct(tokens - demand.tokens, standing.second, now_ms)

    def hold(self, holder: str, lease: str) -> None:
        """Count a request that was granted elsewhere among those that run."""
        self._use(holder).leases.add(lease)

    def release(self, holder: str, lease: str) -> None:
        """A request that was granted elsewhere ended."""
        self._use(holder).leases.discard(lease)

    def held(self) -> dict[str, list[str]]:
        """Leases of what runs, by holder."""
        return {holder: sorted(use.leases) for holder, use in self._uses.items() if use.leases}

    def _use(self, holder: str) -> _Use:
        use = self._uses.get(holder)
        if use is None:
            self._drop_idle()
            use = self._uses[holder] = _Use()
        now_ms = self._clock.now_ms()
        use.requests.roll(now_ms)
        use.tokens.roll(now_ms)
        return use

    def _drop_idle(self) -> None:
        now_ms = self._clock.now_ms()
        for holder, use in list(self._uses.items()):
            use.requests.roll(now_ms)
            use.tokens.roll(now_ms)
            if not (use.leases or use.requests.used or use.tokens.used):
                del self._uses[holder]


def _verdict(use: _Use, demand: Demand, now_ms: int) -> tuple[Bound | None, int]:
    limits = demand.limits
    if limits.requests_per_minute is not None:
        wait_ms = use.requests.wait_ms(1, limits.requests_per_minute, now_ms)
        if wait_ms:
            return Bound.REQUESTS, wait_ms
    if limits.tokens_per_minute is not None:
        wait_ms = use.tokens.wait_ms(demand.tokens, limits.tokens_per_minute, now_ms)
        if wait_ms:
            return Bound.TOKENS, wait_ms
    if limits.concurrent is not None and len(use.leases) >= limits.concurrent:
        return Bound.CONCURRENT, _RETRY_MS
    return None, 0
