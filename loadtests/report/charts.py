"""Draws charts as inline SVG: lines or stacked shares over the time of a run, with faults as bands behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from loadtests.report.series import LEVELS, Layer, Line

_WIDTH, _HEIGHT = 920, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 22, 30
_TICKS = 4


@dataclass(frozen=True, slots=True)
class Band:
    """A fault: its name, and seconds of the run."""

    name: str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Frame:
    """Maps seconds and values to the drawing."""

    duration_s: float
    top: float

    def x(self, second: float) -> float:
        """Horizontal place of a second, kept inside."""
        part = min(1.0, max(0.0, second / self.duration_s))
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Vertical place of a value, kept inside."""
        part = min(1.0, max(0.0, value / self.top))
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)


def line_chart(title: str, unit: str, lines: Sequence[Line], duration_s: float, bands: Sequence[Band]) -> str:
    """Lines over time. A chart of nothing says so instead of being an empty frame."""
    values = [value for line in lines for _, value in line.points]
    if not values:
        return _figure(title, unit, [], _nothing())
    frame = Frame(duration_s, nice_ceiling(max(values)))
    drawn = [_axes(frame, _number), _bands(frame, bands), *(_line(frame, line) for line in lines)]
    return _figure(title, unit, [(line.name, line.style) for line in lines], "".join(drawn))


def level_chart(title: str, lines: Sequence[Line], duration_s: float, bands: Sequence[Band]) -> str:
    """Thermal levels over time, as steps."""
    if not lines:
        return _figure(title, "level", [], _nothing("The router did not show its fleet."))
    frame = Frame(duration_s, len(LEVELS) - 1)
    drawn = [_axes(frame, lambda rung: LEVELS[round(rung)], ticks=len(LEVELS) - 1), _bands(frame, bands)]
    drawn += [_line(frame, line) for line in lines]
    return _figure(title, "level", [(line.name, line.style) for line in lines], "".join(drawn))


def share_chart(title: str, layers: Sequence[Layer], duration_s: float, bands: Sequence[Band]) -> str:
    """Shares over time as stacked columns: a bin in which nothing was sent stays empty."""
    if not layers:
        return _figure(title, "share", [], _nothing())
    frame = Frame(duration_s, 1.0)
    count = len(layers[0].shares)
    width = (_WIDTH - _LEFT - _RIGHT) / count
    columns = []
    for place in range(count):
        below = 0.0
        for layer in layers:
            share = layer.shares[place]
            if share:
                high, low = frame.y(below + share), frame.y(below)
                columns.append(
                    f'<rect class="fill {layer.style}" x="{_LEFT + place * width:.1f}" y="{high:.1f}" '
                    f'width="{max(0.5, width - 0.6):.1f}" height="{low - high:.1f}"/>'
                )
                below += share
    drawn = _axes(frame, lambda value: f"{value:.0%}") + "".join(columns) + _bands(frame, bands)
    return _figure(title, "share", [(layer.name, layer.style) for layer in layers], drawn)


def nice_ceiling(value: float) -> float:
    """The least of 1, 2, 2.5, 5 and 10 times a power of ten that is not below `value`; 1 for nothing."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * (1 - 1e-12))


def _figure(title: str, unit: str, legend: Sequence[tuple[str, str]], drawn: str) -> str:
    keys = "".join(f'<span class="key"><i class="{style}"></i>{escape(name)}</span>' for name, style in legend)
    return (
        f"<figure><figcaption><b>{escape(title)}</b> <small>{escape(unit)}</small>{keys}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">{drawn}</svg></figure>'
    )


def _axes(frame: Frame, label: Callable[[float], str], ticks: int = _TICKS) -> str:
    parts = []
    for tick in range(ticks + 1):
        value = frame.top * tick / ticks
        y = frame.y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="y" x="{_LEFT - 8}" y="{y + 4:.1f}">{escape(label(value))}</text>')
    for tick in range(7):
        second = frame.duration_s * tick / 6
        anchor = ("start", "end")[tick == 6] if tick in (0, 6) else "middle"
        parts.append(
            f'<text class="x" style="text-anchor:{anchor}" x="{frame.x(second):.1f}" y="{_HEIGHT - 10}">'
            f"{_number(second)} s</text>"
        )
    return "".join(parts)


def _bands(frame: Frame, bands: Sequence[Band]) -> str:
    parts = []
    for band in bands:
        left, right = frame.x(band.from_s), frame.x(band.to_s)
        name = escape(band.name)
        parts.append(
            f'<rect class="band" x="{left:.1f}" y="{_TOP}" width="{max(1.0, right - left):.1f}" '
            f'height="{_HEIGHT - _TOP - _BOTTOM}"><title>{name}</title></rect>'
            f'<text class="fault" x="{left + 3:.1f}" y="{_TOP - 7}">{name}</text>'
        )
    return "".join(parts)


def _line(frame: Frame, line: Line) -> str:
    if not line.points:
        return ""
    path, last_y = [], None
    for second, value in line.points:
        x, y = frame.x(second), frame.y(value)
        if line.steps and last_y is not None:
            path.append(f"{x:.1f},{last_y:.1f}")
        path.append(f"{x:.1f},{y:.1f}")
        last_y = y
    dots = "".join(
        f'<circle class="{line.style}" cx="{frame.x(second):.1f}" cy="{frame.y(value):.1f}" r="2">'
        f"<title>{escape(line.name)} at {second:.0f} s: {_number(value)}</title></circle>"
        for second, value in ([] if line.steps else line.points)
    )
    return f'<polyline class="line {line.style}" points="{" ".join(path)}"/>{dots}'


def _nothing(why: str = "No good answer came.") -> str:
    return f'<text class="none" x="{_WIDTH / 2}" y="{_HEIGHT / 2}">{escape(why)}</text>'


def _number(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:g}k" if value % 1000 == 0 else f"{value / 1000:.1f}k"
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"
