"""Tells power and energy per token from counters and generated tokens; pure, None until measured.

Energy is that of the whole processor package while the engine works: what a token costs the battery, the rest of the
device included. Old figures fade, so that a device whose threads were reduced shows the new cost soon.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge.devices.energy import EnergyCounter, joules_between

_KEPT_TOKENS = 2_000.0
"""Beyond this many tokens the sums are scaled down: a sliding mean without a list."""
_LEAST_TOKENS = 16.0


@dataclass(frozen=True, slots=True)
class EnergyMeter:
    """The last counters, and sums over the time in which the engine worked."""

    counters: tuple[EnergyCounter, ...] = ()
    at_ms: int = 0
    watts: float | None = None
    busy_joules: float = 0.0
    tokens: float = 0.0

    def after(self, counters: tuple[EnergyCounter, ...], now_ms: int, *, busy_ratio: float) -> EnergyMeter:
        """The meter after one more reading; an interval counts for tokens if the engine worked in it."""
        elapsed_s = (now_ms - self.at_ms) / 1000
        joules = joules_between(self.counters, counters, elapsed_s)
        if joules is None:
            return replace(self, counters=counters, at_ms=now_ms, watts=None)
        busy = joules if busy_ratio > 0 else 0.0
        return replace(
            self, counters=counters, at_ms=now_ms, watts=joules / elapsed_s, busy_joules=self.busy_joules + busy
        )

    def with_tokens(self, tokens: int) -> EnergyMeter:
        """The meter after `tokens` more were generated; without counters they do not count."""
        if not self.counters:
            return self
        total = self.tokens + tokens
        faded = min(1.0, _KEPT_TOKENS / total) if total else 1.0
        return replace(self, tokens=total * faded, busy_joules=self.busy_joules * faded)

    @property
    def joules_per_token(self) -> float | None:
        """Energy of one output token; None where it is not known."""
        return self.busy_joules / self.tokens if self.tokens >= _LEAST_TOKENS and self.busy_joules > 0 else None
