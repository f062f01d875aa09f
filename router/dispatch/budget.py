"""Bounds retries to a share of first attempts, so that a failing backend never doubles the load on the others.

Source of the scheme: retry budgets of Finagle (Twitter, 2016): a ratio over a sliding window, and a floor so that
a lone request can still fail over.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.backoff import full_jitter_s

_WINDOW_MS = 10_000
_SLOTS = 10
_SLOT_MS = _WINDOW_MS // _SLOTS


@dataclass(frozen=True, slots=True)
class RetryRules:
    """`ratio` of first attempts in ten seconds, or `floor_per_10s`, whichever is more; waits in milliseconds."""

    ratio: float = 0.1
    floor_per_10s: int = 10
    backoff_base_ms: int = 10
    backoff_cap_ms: int = 200

    def wait_s(self, retry: int, fraction: float) -> float:
        """Seconds to wait before retry number `retry` (0 is the first); `fraction` is a uniform draw in [0, 1)."""
        base, cap = self.backoff_base_ms / 1000, self.backoff_cap_ms / 1000
        return full_jitter_s(retry, base_s=base, cap_s=cap, fraction=fraction)


class RetryBudget:
    """Counts of the last ten seconds in slots of one second."""

    def __init__(self, rules: RetryRules) -> None:
        self._rules = rules
        self._firsts = [0] * _SLOTS
        self._retries = [0] * _SLOTS
        self._slot = 0

    def first(self, now_ms: int) -> None:
        """Note a first attempt."""
        self._firsts[self._turn(now_ms)] += 1

    def can_retry(self, now_ms: int) -> bool:
        """Whether one more retry stays within the budget."""
        self._turn(now_ms)
        allowed = max(self._rules.floor_per_10s, int(sum(self._firsts) * self._rules.ratio))
        return sum(self._retries) < allowed

    def retry(self, now_ms: int) -> bool:
        """Spend one retry; False when the budget is spent."""
        if not self.can_retry(now_ms):
            return False
        self._retries[self._turn(now_ms)] += 1
        return True

    def _turn(self, now_ms: int) -> int:
        """Index of the slot of `now_ms`, with the slots that have passed emptied."""
        slot = now_ms // _SLOT_MS
        if slot > self._slot:
            for passed in range(max(self._slot + 1, slot - _SLOTS + 1), slot + 1):
                self._firsts[passed % _SLOTS] = self._retries[passed % _SLOTS] = 0
            self._slot = slot
        return slot % _SLOTS
