"""Turns raw samples into what charts draw: values over the time of the run, in bins of equal length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtests.summary import percentile

LEVELS = ("nominal", "warm", "hot", "critical")
_BINS = 60
Row = Mapping[str, Any]
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: seconds of the run and values. `style` names its colour."""

    name: str
    points: Points
    style: str
    steps: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of stacked shares: for each bin its share from 0 to 1, or None where nothing ended."""

    name: str
    shares: list[float | None]
    style: str


def bin_s(duration_s: float) -> float:
    """Length of a bin: a sixtieth of the run, a second at least."""
    return max(1.0, duration_s / _BINS)


def times(rows: Sequence[Row], measure: str, duration_s: float) -> list[Line]:
    """Median and 95th percentile of a measure over good answers, by when they were sent."""
    binned = _binned([row for row in rows if "failure" not in row and measure in row], duration_s, "at_s")
    lines = []
    for percent, style in ((50, "first"), (95, "second")):
        points = [(at_s, percentile(sorted(row[measure] for row in part), percent)) for at_s, part in binned if part]
        lines.append(Line(f"p{percent}", points, style))
    return lines


def rates(rows: Sequence[Row], duration_s: float, *, tokens: bool) -> list[Line]:
    """Good answers a second, or their tokens, by when they ended."""
    ended = [{**row, "end_s": row["at_s"] + row["total_ms"] / 1000} for row in rows if "failure" not in row]
    width = bin_s(duration_s)
    points = []
    for at_s, part in _binned(ended, duration_s, "end_s"):
        amount = sum(row.get("output_tokens", 0) for row in part) if tokens else len(part)
        points.append((at_s, amount / width))
    return [Line("tokens/s" if tokens else "answers/s", points, "third" if tokens else "first")]


def tier_shares(rows: Sequence[Row], duration_s: float) -> list[Layer]:
    """Which tier gave the answers that were sent in each bin, and which share failed."""
    binned = _binned(rows, duration_s, "at_s")
    names = (("edge", "first"), ("cloud", "second"), ("unnamed", "third"), ("failed", "bad"))
    layers = []
    for name, style in names:
        shares = [sum(_tier(row) == name for row in part) / len(part) if part else None for _, part in binned]
        if any(shares):
            layers.append(Layer(name, shares, style))
    return layers


def levels(looks: Sequence[Row]) -> list[Line]:
    """The hottest thermal level of all edge devices, as an index into `LEVELS`; `unknown` counts as warm."""
    by_time: dict[float, float] = {}
    for look in looks:
        if look.get("tier") == "edge":
            level = str(look.get("level"))
            rung = float(LEVELS.index(level) if level in LEVELS else 1)
            by_time[look["at_s"]] = max(by_time.get(look["at_s"], 0.0), rung)
    return [Line("hottest device", sorted(by_time.items()), "bad", steps=True)] if by_time else []


def _tier(row: Row) -> str:
    return "failed" if "failure" in row else str(row.get("tier", "unnamed"))


def _binned(rows: Sequence[Row], duration_s: float, by: str) -> list[tuple[float, list[Row]]]:
    """Rows by bin: the middle of each bin, and what falls into it; what ends after the run is in the last one."""
    width = bin_s(duration_s)
    count = max(1, -(-int(duration_s * 1000) // int(width * 1000)))
    parts: list[list[Row]] = [[] for _ in range(count)]
    for row in rows:
        parts[min(count - 1, max(0, int(row[by] / width)))].append(row)
    return [((place + 0.5) * width, part) for place, part in enumerate(parts)]
