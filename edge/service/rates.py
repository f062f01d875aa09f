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
        return cls(int(prefill_tokens), prefill_ms, int(decode_tokens), decode_ms)


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
        if timings.decode_tokens >= _LEAST_DECODE_TOKENS and timings.decode_ms > 0:
            # The first token belongs to the prefill: n tokens take n - 1 steps.
            sample = (timings.decode_tokens - 1) / timings.decode_ms * 1000
            self._decode = self._decode.updated(sample, alpha=_ALPHA)
