"""Measured speed of the engine: running means of prefill and decode tokens per second, None until measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.windows import Ewma

_ALPHA = 0.2
_LEAST_PREFILL_TOKENS = 16
_LEAST_DECODE_TOKENS = 4
"""Below these a figure is the cost of starting, not a speed (measured: one cached token reads as 20 tokens/s)."""


@dataclass(frozen=True, slots=True)
class Timings:
    """What the engine says about one finished answer. Tokens from its prompt cache are not in `prefill_tokens`."""

    prefill_tokens: int
    prefill_ms: float
    decode_tokens: int
    decode_ms: float
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @classmethod
    def of(cls, raw: Any) -> Timings | None:
        """The engine's `timings` object, or None when it is not one."""
        if not isinstance(raw, dict):
            return None
        names = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
        values = [raw.get(name) for name in names]
        if not all(isinstance(value, int | float) for value in values):
            return None
        prefill_tokens, prefill_ms, decode_tokens, decode_ms = (float(value or 0) for value in values)
        drafted, accepted = (raw.get(name) for name in ("draft_n", "draft_n_accepted"))  # absent unless it speculates
        return cls(
            int(prefill_tokens),
            prefill_ms,
            int(decode_tokens),
            decode_ms,
            drafted_tokens=drafted if isinstance(drafted, int) else 0,
            accepted_tokens=accepted if isinstance(accepted, int) else 0,
        )

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Output tokens per second; None where they are too few to tell. The first one belongs to the prefill."""
        if self.decode_tokens < _LEAST_DECODE_TOKENS or self.decode_ms <= 0:
            return None
        return (self.decode_tokens - 1) / self.decode_ms * 1000


class Rates:
    """Means over the answers of this process; `on_decoded` hears how many tokens each one had."""

    def __init__(self, on_decoded: Callable[[int], None] = lambda _: None) -> None:
        self._on_decoded = on_decoded
        self._prefill = Ewma()
        self._decode = Ewma()

    @property
    def prefill_tokens_per_s(self) -> float | None:
        """Prompt tokens per second; None before the first answer that can tell."""
        return self._prefill.value

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Output tokens per second of one stream; None before the first answer that can tell."""
        return self._decode.value

    def record(self, timings: Timings) -> None:
        """Take in one finished answer."""
        self._on_decoded(timings.decode_tokens)
        if timings.prefill_tokens >= _LEAST_PREFILL_TOKENS and timings.prefill_ms > 0:
            sample = timings.prefill_tokens / timings.prefill_ms * 1000
            self._prefill = self._prefill.updated(sample, alpha=_ALPHA)
        if (speed := timings.decode_tokens_per_s) is not None:
            self._decode = self._decode.updated(speed, alpha=_ALPHA)
