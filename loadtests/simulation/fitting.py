"""Finds how fast the two tiers of a real stack are, from the samples of a load test.

An edge device serves one request a slot, in the order in which they came: when each began to be served follows from
when the earlier ones ended, so that waiting is taken out before a speed is looked for. A cloud engine batches, so that
its speed is a line in the number of streams that are open. Every fit also tells by which factor each of its samples
took longer or shorter than it says: the simulation draws from these, because the median of what varies is not its mean.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadtests.simulation.cloud import CloudModel
from loadtests.simulation.devices import Floats
from shared.errors import IsthmusError

Row = Mapping[str, Any]
_LEAST_SAMPLES = 8
_LEAST_MS = 0.1
_STREAMS = 32
"""Streams by which the fill of a batch is expressed; nothing depends on the number."""


@dataclass(frozen=True, slots=True)
class EdgeFit:
    """A device: milliseconds to the first token of an empty prompt, tokens a second, and how its samples vary."""

    base_ms: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    factors: Floats


@dataclass(frozen=True, slots=True)
class CloudFit:
    """A cloud endpoint, and how its samples vary."""

    model: CloudModel
    factors: Floats


def fit_edge(rows: Sequence[Row], slots: int) -> EdgeFit:
    """The device behind good answers of the tier `edge`.

    Raises:
        IsthmusError: there are too few of them.
    """
    served = _enough([row for row in rows if row.get("tier") == "edge"], "edge")
    first_ms = np.maximum(_LEAST_MS, _first_ms_alone(served, slots))
    prompt = np.array([row["prompt_tokens"] for row in served], dtype=np.float64)
    base_ms, per_token_ms = _line(prompt, first_ms)
    tpot = np.array([row["tpot_ms"] for row in served if "tpot_ms" in row])
    fitted = base_ms + per_token_ms * prompt
    return EdgeFit(base_ms, 1000.0 / max(per_token_ms, 1e-3), 1000.0 / float(tpot.mean()), first_ms / fitted)


def fit_cloud(rows: Sequence[Row]) -> CloudFit:
    """The endpoint behind good answers of the tier `cloud`, which is never out of streams.

    Raises:
        IsthmusError: there are too few of them.
    """
    served = _enough([row for row in rows if row.get("tier") == "cloud"], "cloud")
    filled = _open_at_start(served) / _STREAMS
    first_ms = np.array([row["ttft_ms"] for row in served])
    prompt = np.array([row["prompt_tokens"] for row in served], dtype=np.float64)
    base_ms, per_token_ms = _line(prompt, first_ms)
    alone = base_ms + per_token_ms * prompt
    # Both were fitted to requests beside others: how much these cost is a second line, and the first shrinks by it.
    one, first_slope = _line(filled, first_ms / alone)
    with_tpot = np.array(["tpot_ms" in row for row in served])
    tpot = np.array([row["tpot_ms"] for row in served if "tpot_ms" in row])
    token_ms, token_slope = _line(filled[with_tpot], tpot)
    model = CloudModel(
        streams_per_replica=_STREAMS,
        prefill_tokens_per_s=1000.0 / max(per_token_ms * one, 1e-3),
        decode_tokens_per_s=1000.0 / max(token_ms, _LEAST_MS),
        base_ms=base_ms * one,
        full_slowdown=token_slope / max(token_ms, _LEAST_MS),
        full_first_slowdown=first_slope / max(one, 1e-3),
        most_replicas=1,
    )
    fitted = alone * one * (1 + model.full_first_slowdown * filled)
    return CloudFit(model, first_ms / np.maximum(fitted, _LEAST_MS))


def _enough(rows: Sequence[Row], tier: str) -> list[Row]:
    good = [row for row in rows if {"ttft_ms", "prompt_tokens"} <= row.keys() and "failure" not in row]
    if len(good) < _LEAST_SAMPLES or sum("tpot_ms" in row for row in good) < _LEAST_SAMPLES:
        raise IsthmusError(
            f"The run has {len(good)} good answers of the tier {tier} to learn from; {_LEAST_SAMPLES} are needed."
        )
    return sorted(good, key=lambda row: row["at_s"])


def _first_ms_alone(rows: Sequence[Row], slots: int) -> Floats:
    """Time to the first token of each request from when a slot was free for it."""
    free_s = [0.0] * slots
    found = []
    for row in rows:
        began_s = max(row["at_s"], heapq.heappop(free_s))
        found.append(row["ttft_ms"] - (began_s - row["at_s"]) * 1000)
        heapq.heappush(free_s, row["at_s"] + row["total_ms"] / 1000)
    return np.array(found)


def _open_at_start(rows: Sequence[Row]) -> Floats:
    """How many other requests of these were open when each was sent."""
    ends_s: list[float] = []
    found = []
    for row in rows:
        while ends_s and ends_s[0] <= row["at_s"]:
            heapq.heappop(ends_s)
        found.append(len(ends_s))
        heapq.heappush(ends_s, row["at_s"] + row["total_ms"] / 1000)
    return np.array(found, dtype=np.float64)


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Level and slope of the line of least squares through the points, neither of them below 0."""
    slope = 0.0 if np.ptp(x) == 0 else float(np.polyfit(x, y, 1)[0])
    slope = max(0.0, slope)
    level = float(y.mean() - slope * x.mean())
    if level < 0:
        return 0.0, float((x * y).sum() / (x * x).sum())
    return level, slope
