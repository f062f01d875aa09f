"""How fast a backend is under heat, in the terms of a prediction (`rows.Row`).

Reported rates come first, slowed by heat. Where no rates are reported, the router's own average of observed first
tokens for prompts of that size stands in. Where neither exists a backend is unmeasured, which ordering handles by
bounded trials.
"""

from __future__ import annotations

from shared.fleet import BackendSnapshot, ThermalLevel, Zone

_SPEED_RATIO = {
    ThermalLevel.NOMINAL: 1.0,
    ThermalLevel.WARM: 0.9,
    ThermalLevel.UNKNOWN: 0.9,
    ThermalLevel.HOT: 0.6,
    ThermalLevel.CRITICAL: 0.3,
}
"""The most a device may be credited with at a level, if it does not report a lower derate itself."""
_LEAST_RATIO = 1e-3
_LEAST_TOKENS_PER_S = 1e-3
"""What is slower counts as this slow, so that no prediction is infinite."""
_CLOUD = Zone.CLOUD


def speed_ratio(backend: BackendSnapshot) -> float:
    """Share of its nominal speed that a backend has now; heat does not reach us from the cloud."""
    ceiling = 1.0 if backend.zone is _CLOUD else _SPEED_RATIO[backend.level]
    return max(min(backend.derate_ratio, ceiling), _LEAST_RATIO)


def ms_per_token(tokens_per_s: float, speed: float) -> float:
    """Milliseconds a token at a nominal rate and a share of it."""
    return 1000.0 / max(tokens_per_s * speed, _LEAST_TOKENS_PER_S)
