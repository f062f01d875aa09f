"""Adds the metrics of several processes that do one work, so that a scrape of any of them shows all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Metric, generate_latest

Snapshot = list[list[Any]]
"""Families as JSON values: name, kind, help, and samples of name, labels and value."""

GAUGES: Mapping[str, str] = {
    "isthmus_router_in_flight": "sum",
    "isthmus_router_breakers": "max",
    "isthmus_router_state_store_up": "min",
    "isthmus_router_policy_file_refused": "max",
}
"""How gauges are added; others are facts that all know alike, and the process that is asked speaks for all."""


def snapshot(registry: CollectorRegistry) -> Snapshot:
    """What `registry` holds now."""
    return [
        [m.name, m.type, m.documentation, [[s.name, s.labels, s.value] for s in m.samples]] for m in registry.collect()
    ]


def added(*snapshots: Snapshot) -> Snapshot:
    """Counters and histograms of `snapshots` together, without gauges: what processes that ended leave behind."""
    counted = [[family for family in each if family[1] != "gauge"] for each in snapshots]
    return _merged(counted)


def exposition_of(own: Snapshot, others: Iterable[Snapshot]) -> bytes:
    """All of it in the Prometheus text format; `own` are those of the process that is asked."""
    families = [_metric(*family) for family in _merged([own, *others])]

    class Gathered(CollectorRegistry):
        def collect(self) -> Iterable[Metric]:
            return families

    return generate_latest(Gathered(auto_describe=False))


def _merged(snapshots: list[Snapshot]) -> Snapshot:
    families: dict[str, list[Any]] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for each in snapshots:
        for name, kind, text, samples in each:
            first = name not in families
            families.setdefault(name, [name, kind, text])
            rule = GAUGES.get(name, "own") if kind == "gauge" else "sum"
            if rule == "own" and not first:
                continue
            found = values.setdefault(name, {})
            for sample, labels, value in samples:
                key = (sample, tuple(sorted(labels.items())))
                found[key] = _together("min" if sample.endswith("_created") else rule, found.get(key), value)
    return [
        [*family, [[sample, dict(labels), value] for (sample, labels), value in values.get(name, {}).items()]]
        for name, family in families.items()
    ]


def _together(rule: str, one: float | None, other: float) -> float:
    if one is None or rule == "own":
        return other
    if rule == "sum":
        return one + other
    return min(one, other) if rule == "min" else max(one, other)


def _metric(name: str, kind: str, text: str, samples: list[list[Any]]) -> Metric:
    metric = Metric(name, text, kind)
    for sample, labels, value in samples:
        metric.add_sample(sample, labels, value)
    return metric
