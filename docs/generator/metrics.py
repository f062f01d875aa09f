"""The page of metrics: every series that router and edge agent declare, with type, unit, labels and their values."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from generator.labels import values_of
from generator.tables import code, table
from shared.telemetry import EdgeMetrics, HttpMetrics, RouterMetrics

_INTRODUCTION = """# Metrics

`GET /metrics` of the router and of the edge agent, in the Prometheus text format. A label never holds what a client can
choose; what lies beyond its closed set is counted as `other`. A histogram has `_bucket`, `_sum` and `_count`.
[Values of labels](#values-of-labels) lists the sets.

"""
_RELAYED = """
## Engines

The engines' own metrics keep their names, labels and values: `llamacpp:*` follows the agent's own at its `GET /metrics`
(while the engine serves somebody, where it is to sleep otherwise: `edge.engine.sleep_after_s`), and `vllm:*` of all
replicas is at `GET /ops/metrics` of the cloud tier, with the label `replica` added. Ray exports the latter too, at the
metrics port of each node and under names of its own (`ray_vllm_*`), which the chart's dashboards read. What they mean
is told by [vLLM](https://docs.vllm.ai/en/stable/usage/metrics/) and
[llama.cpp](https://github.com/ggml-org/llama.cpp/tree/master/tools/server).
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
    tables = "\n".join(
        f"## {title}\n\n" + table(("metric", "type", "unit", "labels", "meaning"), _rows(kind))
        for kind, title in _TITLES.items()
    )
    rows = [row for kind in _TITLES for row in _values(kind)]
    return _INTRODUCTION + tables + _RELAYED + "\n## Values of labels\n\n" + table(("metric", "label", "values"), rows)


def _declared(kind: type[HttpMetrics]) -> list[MetricWrapperBase]:
    declared = vars(kind(CollectorRegistry())).values()  # type: ignore[call-arg]
    return [each for each in declared if isinstance(each, MetricWrapperBase)]


def _values(kind: type[HttpMetrics]) -> list[tuple[str, ...]]:
    """Rows of the labels of all metrics that have some.

    Raises:
        KeyError: a metric and the sets of `labels` do not fit each other.
    """
    rows = []
    for each in _declared(kind):
        (family,) = each.describe()
        name = family.name + ("_total" if family.type == "counter" else "")
        rows += [
            (code(name), code(label), ", ".join(code(value) if " " not in value else value for value in values))
            for label, values in values_of(family.name, each._labelnames)
        ]
    return sorted(rows)


def _rows(kind: type[HttpMetrics]) -> list[tuple[str, ...]]:
    found = _declared(kind)
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
