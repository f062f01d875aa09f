"""Predicts time to first token and time per output token of one request on one backend.

Reported rates come first: wait for the queue ahead + prompt / prefill rate, then output / decode rate, all slowed
by heat. Where no rates are reported, the router's own average of observed first tokens for prompts of that size
stands in. Where neither exists the answer is None: unmeasured, which ordering handles by bounded trials.
"""

from __future__ import annotations

from router.policy.need import Need
from shared.fleet import BackendSnapshot, ThermalLevel, Zone

_SPEED_RATIO = {
    ThermalLevel.NOMINAL: 1.0,
    ThermalLevel.WARM: 0.9,
    ThermalLevel.UNKNOWN: 0.9,
    ThermalLevel.HOT: 0.6,
    ThermalLevel.CRITICAL: 0.3,
}
"""The most a device may be credited with at a level, if it does not report a lower derate itself."""


Prediction = tuple[float | None, float | None, float | None]
"""Milliseconds to the first token, per output token, and in total (first token and all output)."""

_CLOUD = Zone.CLOUD


def speed_ratio(backend: BackendSnapshot) -> float:
    """Share of its nominal speed that a backend has now; heat does not reach us from the cloud."""
    if backend.zone is _CLOUD:
        return backend.derate_ratio
    ceiling = _SPEED_RATIO[backend.level]
    return backend.derate_ratio if backend.derate_ratio < ceiling else ceiling


def predict(backend: BackendSnapshot, need: Need, load: int, assumed_tpot_ms: float) -> Prediction:
    """The prediction; `assumed_tpot_ms` stands in for an unknown decode rate in the total alone.

    The queue ahead is served `slots_total` at a time by requests like this one: with `load` L at S slots, the
    new one waits (L - S + 1) / S service times.
    """
    speed = speed_ratio(backend)
    decode = backend.decode_tokens_per_s
    tpot_ms = None if decode is None else 1000.0 / (decode * speed)
    first_ms = _first_token_ms(backend, need, speed)
    if first_ms is None:
        return None, tpot_ms, None
    output_ms = need.output_tokens * (assumed_tpot_ms if tpot_ms is None else tpot_ms)
    slots = backend.slots_total or 1
    ahead = load - slots + 1
    if ahead > 0:
        first_ms += (first_ms + output_ms) * ahead / slots
    return first_ms, tpot_ms, first_ms + output_ms


def _first_token_ms(backend: BackendSnapshot, need: Need, speed: float) -> float | None:
    """Time to first token on an idle backend."""
    prefill = backend.prefill_tokens_per_s
    if prefill is not None:
        return need.prompt_tokens * 1000.0 / (prefill * speed)
    observed = backend.ttft_ms
    if need.bucket < len(backend.ttft_ms_by_prompt):
        in_bucket = backend.ttft_ms_by_prompt[need.bucket]
        observed = observed if in_bucket is None else in_bucket
    return None if observed is None else observed / speed
