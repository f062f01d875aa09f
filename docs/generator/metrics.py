"""The page of metrics: every series that router and edge agent declare, with type, unit and labels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from generator.tables import code, table
from shared.telemetry import EdgeMetrics, HttpMetrics, RouterMetrics

_INTRODUCTION = """# Metrics

`GET /metrics` of the router and of the edge agent, in the Prometheus text format. A label never holds what a client can
choose; what lies beyond its closed set is counted as `other`. A histogram has `_bucket`, `_sum` and `_count`.

"""
_UNITS = {
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_celsius": "degrees Celsius",
    "_watts": "watts",
    "_joules_per_token": "joules a token",
    "_seconds_to_throttle": "seconds",
    "_info": "1",
    "_up": "0 or 1",
    "_ready": "0 or 1",
    "_refused": "0 or 1",
}
_TITLES: dict[type[HttpMetrics], str] = {RouterMetrics: "Router", EdgeMetrics: "Edge agent"}


def page() -> str:
    """The whole page."""
    return _INTRODUCTION + "\n".join(
        f"## {title}\n\n" + table(("metric", "type", "unit", "labels", "meaning"), _rows(kind))
        for kind, title in _TITLES.items()
    )


def _rows(kind: type[HttpMetrics]) -> list[tuple[str, ...]]:
    declared = vars(kind(CollectorRegistry())).values()  # type: ignore[call-arg]
    found = [each for each in declared if isinstance(each, MetricWrapperBase)]
    rows = []
    for each in found:
        (family,) = each.describe()
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(code(label) for label in each._labelnames)
        rows.append((code(name), family.type, _unit(name, family.type), labels, family.documentation))
    return sorted(rows)


def _unit(name: str, kind: str) -> str:
    if kind == "counter":
        return "count"
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "count")
