"""Writes the report of a run as one HTML page that needs nothing else: no script, no font, no picture from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from loadtests.report import series
from loadtests.report.charts import Band, level_chart, line_chart, share_chart

_PAGE = Path(__file__).with_name("page.html")
_MEASURES = {
    "ttft_ms": "first text",
    "content_ms": "first text of the answer",
    "tpot_ms": "per output token",
    "longest_gap_ms": "longest silence",
    "total_ms": "whole answer",
    "total_corrected_ms": "whole answer, had users not waited",
    "late_ms": "sent after it was due",
}
_POINTS = ("count", "min", "p50", "p90", "p95", "p99", "max")


def page(report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The page for a report and its raw samples."""
    plan = report["plan"]
    body = [
        _head(report),
        _tiles(report),
        _invalid(report),
        _objectives(report),
        "<h2>Over time</h2>",
        *_charts(report, rows),
        "<h2>Times of good answers (milliseconds)</h2>",
        _spreads(report),
        _failures(report),
        _faults(report),
        "<h2>By kind of request</h2>",
        _kinds(report),
        _how(report),
    ]
    title = f"Isthmus load test: {plan['scenario']}, {plan['began']}"
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(
        title=escape(title), body="\n".join(filter(None, body))
    )


def _head(report: Mapping[str, Any]) -> str:
    plan = report["plan"]
    if not report["valid"]:
        word, style = "invalid", "bad"
    else:
        word, style = ("passed", "good") if report["passed"] else ("missed", "bad")
    load = f"{plan['users']} users" if plan["loop"] == "closed" else f"{plan['rate_per_s']:g} requests/s"
    return (
        f"<h1>Load test {escape(str(plan['scenario']))} <span class='verdict {style}'>{word}</span></h1>"
        f"<p>{escape(str(plan['about']))}</p>"
        f"<p class='soft'>{escape(plan['began'])}, {load}, {escape(plan['shape'])} for {plan['duration_s']} s, "
        f"against {escape(plan['host'])}</p>"
    )


def _tiles(report: Mapping[str, Any]) -> str:
    edge = report["edge_ratio"]
    tiles = (
        ("first text p50", _ms(report["ttft_ms"].get("p50")), False),
        ("first text p95", _ms(report["ttft_ms"].get("p95")), False),
        ("leaks (bytes)", str(report["leaks"]), report["leaks"] > 0),
        ("good answers", str(report["succeeded"]), report["succeeded"] == 0),
        ("failed", str(report["failed"]), report["failed"] > 0),
        ("told to wait first", str(report["told_to_wait"]), False),
        ("tokens/s", f"{report['output_tokens_per_s']:.1f}", False),
        ("answered by the edge", "-" if edge is None else f"{edge:.0%}", False),
    )
    return "<div class='tiles'>" + "".join(_tile(*tile) for tile in tiles) + "</div>"


def _tile(name: str, value: str, bad: bool) -> str:
    return f"<div class='tile{' bad' if bad else ''}'><b>{escape(value)}</b><small>{escape(name)}</small></div>"


def _invalid(report: Mapping[str, Any]) -> str:
    if report["valid"]:
        return ""
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in report["invalid_because"])
    return f"<h2>Why this run says nothing</h2><ul>{reasons}</ul>"


def _objectives(report: Mapping[str, Any]) -> str:
    if not report["objectives"]:
        return ""
    rows = "".join(
        f"<tr><td>{escape(each['name'])}</td>"
        f"<td>{'nothing measured' if each['seen'] is None else _figure(each['seen'])}</td>"
        f"<td class='{'good' if each['met'] else 'bad'}'>{'met' if each['met'] else 'missed'}</td></tr>"
        for each in report["objectives"]
    )
    return f"<h2>Objectives</h2><table><tr><th>objective</th><th>seen</th><th></th></tr>{rows}</table>"


def _charts(report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    duration_s = max(1.0, float(report["duration_s"]))
    bands = [Band(str(each["name"]), each["from_s"], min(each["to_s"], duration_s)) for each in report["faults"]]
    return [
        line_chart("Time to first text", "ms", series.times(rows, "ttft_ms", duration_s), duration_s, bands),
        line_chart("Time per output token", "ms", series.times(rows, "tpot_ms", duration_s), duration_s, bands),
        line_chart("Answers", "a second", series.rates(rows, duration_s, tokens=False), duration_s, bands),
        line_chart("Output tokens", "a second", series.rates(rows, duration_s, tokens=True), duration_s, bands),
        share_chart("Who answered", series.tier_shares(rows, duration_s), duration_s, bands),
        level_chart("Thermal level", series.levels(report["looks"]), duration_s, bands),
    ]


def _spreads(report: Mapping[str, Any]) -> str:
    head = "".join(f"<th>{point}</th>" for point in _POINTS)
    lines = []
    for key, title in _MEASURES.items():
        spread = report[key]
        if spread["count"]:
            cells = "".join(f"<td>{spread[p] if p == 'count' else _figure(spread[p])}</td>" for p in _POINTS)
            lines.append(f"<tr><td>{title}</td>{cells}</tr>")
    return f"<div class='scroll'><table><tr><th>measure</th>{head}</tr>{''.join(lines)}</table></div>"


def _failures(report: Mapping[str, Any]) -> str:
    if not report["failures"]:
        return ""
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{count}</td></tr>" for name, count in report["failures"].items())
    return f"<h2>Failures</h2><table><tr><th>category</th><th>requests</th></tr>{rows}</table>"


def _faults(report: Mapping[str, Any]) -> str:
    if not report["faults"]:
        return ""
    rows = "".join(
        f"<tr><td>{escape(each['name'])}</td><td>{each['from_s']:.0f} to {each['to_s']:.0f} s</td>"
        + "".join(f"<td>{_share(each['edge_ratio'][part])}</td>" for part in ("before", "during", "after"))
        + "</tr>"
        for each in report["faults"]
    )
    head = "<th>fault</th><th>when</th><th>edge before</th><th>during</th><th>after</th>"
    return f"<h2>Faults, and the share that the edge answered</h2><table><tr>{head}</tr>{rows}</table>"


def _kinds(report: Mapping[str, Any]) -> str:
    head = "".join(
        f"<th>{name}</th>" for name in ("good", "failed", "first text p50", "p95", "per token p50", "tokens/s", "edge")
    )
    rows = []
    for kind, each in report["by_kind"].items():
        cells = (
            str(each["succeeded"]),
            str(each["failed"]),
            _ms(each["ttft_ms"].get("p50")),
            _ms(each["ttft_ms"].get("p95")),
            _ms(each["tpot_ms"].get("p50")),
            f"{each['output_tokens_per_s']:.1f}",
            _share(each["edge_ratio"]),
        )
        rows.append(f"<tr><td>{escape(kind)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f"<div class='scroll'><table><tr><th>kind</th>{head}</tr>{''.join(rows)}</table></div>"


def _how(report: Mapping[str, Any]) -> str:
    plan, machine = report["plan"], report["plan"]["machine"]
    cores = f"{machine['cores']} cores, {machine['processor']}, Python {machine['python']}"
    lengths = "; ".join(
        f"{kind} prompt {_lengths(each['prompt'])}, output {_lengths(each['output'])}"
        for kind, each in plan["lengths_tokens"].items()
    )
    facts = {
        "load": plan["coordinated_omission"],
        "lengths": f"tokens, log-normal: {lengths}",
        "leaks": report["leaks_evidence"],
        "cut off by the end": f"{report['unfinished']} requests, in no figure above",
        "seed": f"{plan['seed']} (run {plan['run_id']})",
        "workers": f"{plan['workers']}, on {cores}",
        "percentiles": "nearest rank over the raw samples in samples.jsonl, good answers alone",
    }
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
    return f"<h2>How it was measured</h2><dl>{items}</dl>"


def _lengths(each: Mapping[str, Any]) -> str:
    return f"median {each['median']:g}, sigma {each['sigma']:g}, {each['least']} to {each['most']}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _figure(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.4g}"
