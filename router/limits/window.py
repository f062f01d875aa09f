"""Counts amounts over a minute in seconds of which each counts until it lies a whole minute back; pure arithmetic.

No stretch of sixty seconds ever holds more than the limit: what was taken within a second counts until the end of that
second is a minute ago, so that a place comes free up to one second late and never early.
"""

from __future__ import annotations

from collections import deque

SPAN_S = 60


class Window:
    """The amounts of one key. Times are milliseconds of any clock that does not go back."""

    def __init__(self) -> None:
        self._amounts: deque[list[int]] = deque()
        self.used = 0

    def roll(self, now_ms: int) -> None:
        """Let go of what is more than a minute old."""
        while self._amounts and _frees_at_ms(self._amounts[0][0]) <= now_ms:
            self.used -= self._amounts.popleft()[1]

    def add(self, amount: int, now_ms: int) -> None:
        """Count `amount` now."""
        second = now_ms // 1000
        if self._amounts and self._amounts[-1][0] >= second:
            self._amounts[-1][1] += amount
        else:
            self._amounts.append([second, amount])
        self.used += amount

    def correct(self, amount: int, second: int, now_ms: int) -> None:
        """Change what was counted in `second` by `amount`; more than was counted there counts now."""
        self.roll(now_ms)
        for entry in self._amounts:
            if entry[0] == second:
                change = max(amount, -entry[1])
                entry[1] += change
                self.used += change
                return
        if amount > 0:
            self.add(amount, now_ms)

    def wait_ms(self, amount: int, limit: int, now_ms: int) -> int:
        """How long until `amount` fits below `limit`; 0 when it does now."""
        over = self.used + amount - limit
        for second, freed in self._amounts:
            if over <= 0:
                return 0
            over -= freed
            if over <= 0:
                return _frees_at_ms(second) - now_ms
        return 0 if over <= 0 else SPAN_S * 1000

    def reset_ms(self, now_ms: int) -> int:
        """How long until nothing is used."""
        last = next((second for second, amount in reversed(self._amounts) if amount), None)
        return 0 if last is None else _frees_at_ms(last) - now_ms


def _frees_at_ms(second: int) -> int:
    return (second + 1 + SPAN_S) * 1000
