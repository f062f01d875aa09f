"""How long to wait before attempt N: exponential with full jitter.

Source of the formula: M. Brooker, "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015).
"""

from __future__ import annotations


def full_jitter_s(attempt: int, *, base_s: float, cap_s: float, fraction: float) -> float:
    """Seconds to wait before `attempt` (0 for the first retry); `fraction` is a uniform draw in [0, 1)."""
    # The exponent is bounded: 2.0 ** 1024 would overflow after a long outage.
    return fraction * min(cap_s, base_s * 2.0 ** min(attempt, 62))
