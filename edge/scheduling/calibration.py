"""Fits what an engine reaches of a unit's peaks, by class of operator, to four measured times.

Decoding after a short and after a longer past: their difference is attention alone, which grows with the past; the rest
of the short one is reading weights. A short and a longer prompt: matrix products grow with the tokens, attention with
their square, which separates the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from edge.devices.unit import Efficiency, UnitProfile
from edge.scheduling.graph import Model, Operator, operators
from edge.scheduling.roofline import cost
from edge.scheduling.workload import Workload, decode, prefill

SHORT_TOKENS = 63
LONG_TOKENS = 1536
_SHARE_LIMITS = (1e-4, 100.0)
_ROUNDS = 60
_HALVINGS = 40
_SETTLED = 1e-4
_Alike: TypeAlias = list[tuple[Operator, int, int]]


@dataclass(frozen=True, slots=True)
class Samples:
    """Measured seconds: of one token after the short and the long past, and of the short and the long prompt."""

    decode_short_s: float
    decode_long_s: float
    prefill_short_s: float
    prefill_long_s: float
    short_tokens: int = SHORT_TOKENS
    long_tokens: int = LONG_TOKENS


def fit(model: Model, unit: UnitProfile, samples: Samples, *, batch_tokens: int, ubatch_tokens: int) -> Efficiency:
    """The efficiency with which the prediction equals the samples, as near as their noise allows.

    Each share is found by bisection in turn (the time falls as a share rises), until all four have settled.
    """
    cut = partial(prefill, batch_tokens=batch_tokens, ubatch_tokens=ubatch_tokens)
    targets = {
        "product_bytes": (decode(samples.short_tokens), samples.decode_short_s),
        "attention_decode_flops": (decode(samples.long_tokens), samples.decode_long_s),
        "product_flops": (cut(samples.short_tokens), samples.prefill_short_s),
        "attention_prefill_flops": (cut(samples.long_tokens), samples.prefill_long_s),
    }
    alike = {name: _alike(model, work) for name, (work, _) in targets.items()}
    share = Efficiency()
    for _ in range(_ROUNDS):
        before = share
        for name, (_, measured_s) in targets.items():
            share = share.model_copy(
                update={name: _solved(partial(_predicted_s, unit, share, name, alike[name]), measured_s)}
            )
        if all(math.isclose(getattr(before, name), getattr(share, name), rel_tol=_SETTLED) for name in targets):
            break
    return share


def workload_s(model: Model, work: Workload, unit: UnitProfile) -> float:
    """Predicted seconds of `work` on one unit alone."""
    return math.fsum(count * cost(operator, unit, tokens).seconds for operator, tokens, count in _alike(model, work))


def _alike(model: Model, work: Workload) -> _Alike:
    """Operator, length of its pass, and how often: layers that cost the same are taken together."""
    found: dict[tuple[Operator, int], int] = {}
    for each in work.passes:
        for operator in operators(model, each):
            key = (replace(operator, layer=None), each.tokens)
            found[key] = found.get(key, 0) + each.count
    return [(operator, tokens, count) for (operator, tokens), count in found.items()]


def _predicted_s(unit: UnitProfile, share: Efficiency, name: str, alike: _Alike, trial: float) -> float:
    """Predicted seconds with share `name` at `trial`."""
    tried = unit.model_copy(update={"efficiency": share.model_copy(update={name: trial})})
    return math.fsum(count * cost(operator, tried, tokens).seconds for operator, tokens, count in alike)


def _solved(predicted_s: Callable[[float], float], measured_s: float) -> float:
    """The share at which the prediction, which falls as it rises, is what was measured; or the nearest limit."""
    low, high = (math.log(limit) for limit in _SHARE_LIMITS)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if predicted_s(math.exp(middle)) > measured_s:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)
