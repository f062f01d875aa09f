"""Compares two runs figure by figure, with confidence intervals from resampling pieces of time.

Answers of one moment resemble each other (one queue, one hot device), so that resampling single answers would make the
intervals too narrow. Whole pieces of each run are drawn instead (block bootstrap, Künsch 1989), and the interval is
the middle 95 % of the ratios that come out (percentile method).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtests.samples import MEASURES

_BLOCKS = 30
_LEAST_BLOCKS = 8
_ROUNDS = 2_000
_POINTS = (50, 95)
Floats = NDArray[np.float64]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of both runs. `low` and `high` bound B relative to A with 95 % confidence; None where there is too
    little to say. `differs` says that the interval leaves 1 out."""

    figure: str
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None

    @property
    def differs(self) -> bool:
        """Whether the difference is more than chance, as far as these two runs tell."""
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high


@dataclass(frozen=True, slots=True)
class Run:
    """The samples of a run and how long it lasted (seconds)."""

    rows: Sequence[Row]
    duration_s: float

    def blocks(self) -> list[list[Row]]:
        """The samples in pieces of equal length, by when they were sent."""
        width = max(self.duration_s, 1e-9) / _BLOCKS
        parts: list[list[Row]] = [[] for _ in range(_BLOCKS)]
        for row in self.rows:
            parts[min(_BLOCKS - 1, max(0, int(row["at_s"] / width)))].append(row)
        return parts


def compare_runs(a: Run, b: Run, *, seed: int = 1) -> list[Compared]:
    """All figures of both; the same seed gives the same intervals."""
    dice = np.random.default_rng(seed)
    compared = [_times(a, b, measure, percent, dice) for measure in MEASURES for percent in _POINTS]
    shares: tuple[tuple[str, Callable[[Row], float], bool], ...] = (
        ("answers/s", lambda row: float("failure" not in row), True),
        ("tokens/s", lambda row: 0.0 if "failure" in row else float(row.get("output_tokens", 0)), True),
        ("failed share", lambda row: float("failure" in row), False),
        ("told to wait share", lambda row: float("told_to_wait" in row), False),
        ("edge share", lambda row: float("failure" not in row and row.get("tier") == "edge"), False),
    )
    compared += [_sums(a, b, name, of, dice, per_second=per_second) for name, of, per_second in shares]
    return [each for each in compared if each.a is not None or each.b is not None]


def _times(a: Run, b: Run, measure: str, percent: int, dice: np.random.Generator) -> Compared:
    """A percentile of a measure over good answers."""
    parts = [
        [
            np.array([row[measure] for row in block if "failure" not in row and measure in row], dtype=np.float64)
            for block in run.blocks()
        ]
        for run in (a, b)
    ]
    seen = [_percentile(np.concatenate(part), percent) for part in parts]
    drawn = [_redrawn_percentiles(part, percent, dice) for part in parts]
    return _compared(f"{measure} p{percent}", seen, drawn)


def _sums(
    a: Run, b: Run, name: str, of: Callable[[Row], float], dice: np.random.Generator, *, per_second: bool
) -> Compared:
    """A sum over all answers, by second or by answer."""
    seen: list[float | None] = []
    drawn: list[Floats | None] = []
    for run in (a, b):
        blocks = run.blocks()
        sums = np.array([sum(map(of, block)) for block in blocks], dtype=np.float64)
        weights = np.array([run.duration_s / _BLOCKS if per_second else len(block) for block in blocks])
        seen.append(float(sums.sum() / weights.sum()) if weights.sum() > 0 else None)
        places = dice.integers(0, _BLOCKS, size=(_ROUNDS, _BLOCKS))
        totals = weights[places].sum(axis=1)
        drawn.append(sums[places].sum(axis=1) / totals if (totals > 0).all() else None)
    return _compared(name, seen, drawn)


def _redrawn_percentiles(blocks: Sequence[Floats], percent: int, dice: np.random.Generator) -> Floats | None:
    """The percentile of each redrawn run; None where too few pieces hold anything."""
    if sum(len(block) > 0 for block in blocks) < _LEAST_BLOCKS:
        return None
    values = np.concatenate(blocks)
    order = np.argsort(values, kind="stable")
    values, owner = values[order], np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])[order]
    found = np.full(_ROUNDS, np.nan)
    for place in range(_ROUNDS):
        # How often each piece was drawn is the weight of each of its answers.
        times_drawn = np.bincount(dice.integers(0, len(blocks), size=len(blocks)), minlength=len(blocks))
        reached = np.cumsum(times_drawn[owner])
        if reached[-1] > 0:
            wanted = np.ceil(reached[-1] * percent / 100)
            found[place] = values[np.searchsorted(reached, max(1.0, wanted))]
    return found


def _percentile(values: Floats, percent: int) -> float | None:
    """Nearest rank, as everywhere in these reports."""
    if values.size == 0:
        return None
    ordered = np.sort(values)
    return float(ordered[max(0, int(np.ceil(values.size * percent / 100)) - 1)])


def _compared(figure: str, seen: Sequence[float | None], drawn: Sequence[Floats | None]) -> Compared:
    a, b = seen
    ratio = b / a if a and b is not None else None
    low = high = None
    if drawn[0] is not None and drawn[1] is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = drawn[1] / drawn[0]
        ratios = ratios[np.isfinite(ratios)]
        if ratio is not None and ratios.size >= _ROUNDS // 2:
            low, high = (float(value) for value in np.percentile(ratios, [2.5, 97.5]))
    return Compared(figure, a, b, ratio, low, high)
