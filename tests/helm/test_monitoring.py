"""What Prometheus and Grafana are given: expressions that parse, metrics that exist, runbooks that can be opened."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from router.dispatch.verdict import Outcome
from router.http.inference import _OUTCOMES, BROKEN, CLIENT_LEFT
from shared.fleet import BackendState, Breaker, Zone
from shared.telemetry import EdgeMetrics, RouterMetrics, new_registry
from tests.helm.manifests import CHART, CI_VALUES, Helm, Manifest, Rendered

RUNBOOKS = CHART.parents[1] / "docs" / "runbooks"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
KUBERAY = {"kuberay_service_info", "kuberay_service_condition_ready", "kuberay_service_condition_upgrade_in_progress"}
"""Of the operator, since 1.4: "KubeRay metrics references" of Ray's documentation."""
VARIABLES = {"$__rate_interval": "5m", "$namespace": "models", "$datasource": "prometheus"}


def _alerts(rendered: Rendered) -> list[Manifest]:
    groups = rendered.one("PrometheusRule")["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _queries(path: Path) -> Iterator[tuple[str, str]]:
    """Title and expression of each query of a dashboard, its variables replaced."""
    for panel in json.loads(path.read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield panel["title"], expression


def _selectors(expression: str) -> list[Any]:
    """Every vector selector of an expression, which must be PromQL."""
    found: list[Any] = []

    def visit(part: Any) -> None:
        match part:
            case promql_parser.VectorSelector():
                found.append(part)
            case promql_parser.MatrixSelector():
                visit(part.vector_selector)
            case promql_parser.BinaryExpr():
                visit(part.lhs)
                visit(part.rhs)
            case promql_parser.Call():
                for argument in part.args:
                    visit(argument)
            case promql_parser.AggregateExpr() | promql_parser.ParenExpr() | promql_parser.UnaryExpr():
                visit(part.expr)
            case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
                pass
            case other:
                raise AssertionError(f"unknown part {other!r} of {expression}")

    visit(promql_parser.parse(expression))
    return found


@cache
def _ours() -> dict[str, frozenset[str]]:
    """Series of the router and the agent, by name, with the labels that each has."""
    known: dict[str, frozenset[str]] = {}
    for metrics in (RouterMetrics, EdgeMetrics):
        registry = new_registry()
        held = metrics(registry)
        for metric in vars(held).values():
            (family,) = metric.describe()
            labels = frozenset(metric._labelnames)
            suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}[family.type]
            known |= {f"{family.name}{suffix}": labels for suffix in suffixes}
    return known


@cache
def _named_in(package: str, folder: str, pattern: str) -> frozenset[str]:
    """Metric names that the installed package declares, read from its source without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    texts = (path.read_text("utf-8") for path in (Path(spec.origin).parent / folder).rglob("*.py"))
    return frozenset(name for text in texts for name in re.findall(pattern, text))


def _exists(name: str) -> bool:
    if name in _ours() or name in KUBERAY or name == "up":
        return True
    plain = re.sub(r"_(total|bucket|sum|count)$", "", name)
    if name.startswith("ray_vllm_"):
        declared = _named_in("vllm", "v1/metrics", r'"vllm:(\w+)"')
        return bool({name.removeprefix("ray_vllm_"), plain.removeprefix("ray_vllm_")} & declared)
    declared = _named_in("ray", "serve/_private", r'"(serve_\w+)"')
    return name.startswith("ray_serve_") and bool({name.removeprefix("ray_"), plain.removeprefix("ray_")} & declared)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_metric_of_a_dashboard_exists(path: Path) -> None:
    for title, expression in _queries(path):
        selectors = _selectors(expression)
        assert selectors, title
        assert [s.name for s in selectors if not _exists(s.name)] == [], title


def test_every_metric_of_an_alert_exists(of_ci: Callable[[str], Rendered]) -> None:
    for rule in _alerts(of_ci("ha")):
        assert [s.name for s in _selectors(rule["expr"]) if not _exists(s.name)] == [], rule


def test_a_metric_that_does_not_exist_is_found() -> None:
    invented = ("isthmus_router_requests", "ray_vllm_num_requests_sleeping", "ray_serve_replicas", "vllm:num_requests")
    assert [name for name in invented if _exists(name)] == []


def test_all_metrics_of_ours_are_shown_somewhere() -> None:
    shown = {s.name for path in DASHBOARDS for _, expression in _queries(path) for s in _selectors(expression)}
    base = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    hidden = {re.sub(r"_(bucket|sum|count)$", "", name) for name in _ours()} - base
    assert hidden <= {"isthmus_edge_in_flight", "isthmus_edge_cancelled_total"}


SETS = {
    ("isthmus_router_requests_total", "outcome"): {*_OUTCOMES.values(), "client_error", CLIENT_LEFT, BROKEN},
    ("isthmus_router_attempts_total", "outcome"): set(Outcome),
    ("isthmus_router_backends", "state"): set(BackendState),
    ("isthmus_router_backends", "zone"): set(Zone),
    ("isthmus_router_breakers", "state"): set(Breaker),
}
"""Closed sets that labels take their values from."""


def test_labels_of_our_metrics_and_their_values_exist(of_ci: Callable[[str], Rendered]) -> None:
    """An alert on an outcome that is never counted would never fire, and nobody would notice."""
    scraped = {"namespace", "service", "pod", "instance", "job"}
    expressions = [rule["expr"] for rule in _alerts(of_ci("ha"))] + [e for p in DASHBOARDS for _, e in _queries(p)]
    checked = 0
    for selector in (s for expression in expressions for s in _selectors(expression) if s.name in _ours()):
        for matcher in selector.matchers.matchers:
            assert matcher.name in _ours()[selector.name] | scraped, (selector.name, matcher.name)
            if values := SETS.get((selector.name, matcher.name)):
                assert set(matcher.value.split("|")) <= values, (selector.name, matcher.value)
                checked += 1
    assert checked >= 4


def test_every_alert_has_a_runbook_and_every_runbook_an_alert(of_ci: Callable[[str], Rendered]) -> None:
    alerts = [rule for rule in _alerts(of_ci("ha")) if "alert" in rule]
    base = "https://docs.example.com/isthmus/runbooks/"
    files = [rule["annotations"]["runbook_url"].removeprefix(base) for rule in alerts]
    assert sorted(files) == sorted(path.name for path in RUNBOOKS.glob("*.md"))
    for rule in alerts:
        assert rule["alert"].startswith("Isthmus") and rule["annotations"]["summary"].endswith(".")
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_links_between_runbooks_lead_somewhere() -> None:
    for path in RUNBOOKS.glob("*.md"):
        text = path.read_text("utf-8")
        assert text.startswith("# ") and "\n## Look\n" in text and "\n## Do\n" in text, path.name
        for link in re.findall(r"\]\(([^)]+)\)", text):
            assert (RUNBOOKS / link).exists(), (path.name, link)


def test_the_alert_on_redis_needs_a_redis(helm4: Helm) -> None:
    values = {"monitoring": {"prometheusRule": {"enabled": True}}}
    names = {rule["alert"] for rule in _alerts(helm4.template(CI_VALUES[-1], values))}
    assert "IsthmusStateStoreDown" not in names and "IsthmusRouterDown" in names
    external = helm4.template(next(p for p in CI_VALUES if p.name == "external-values.yaml"), values)
    groups = {group["name"] for group in external.one("PrometheusRule")["spec"]["groups"]}
    assert groups == {"isthmus-router"}, "no Ray, no alerts on it"


def test_without_anything_to_watch_there_is_no_rule(helm4: Helm) -> None:
    """A rule without groups would be a null."""
    nothing = {"router": {"enabled": False}, "cloud": {"enabled": False}}
    rendered = helm4.template(nothing, {"monitoring": {"prometheusRule": {"enabled": True}}})
    assert not rendered.of_kind("PrometheusRule")


def test_scrapes_find_their_pods_and_carry_a_key(of_ci: Callable[[str], Rendered]) -> None:
    rendered = of_ci("ha")
    monitor = rendered.one("ServiceMonitor")["spec"]
    service = rendered.one("Service", "demo-isthmus-router")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["authorization"]["credentials"] == {"name": "metrics-key", "key": "api-key"}
    pods = rendered.one("PodMonitor")["spec"]
    (expression,) = pods["selector"]["matchExpressions"]
    hits = set()
    for name, template in rendered.pod_templates():
        labels = template["metadata"]["labels"]
        if (
            labels[expression["key"]] in expression["values"]
            and pods["selector"]["matchLabels"].items() <= labels.items()
        ):
            ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
            assert pods["podMetricsEndpoints"][0]["port"] in ports
            hits.add(name.rsplit("/", 1)[-1])
    assert hits == {"head", "cpu"}
    assert all(found["metadata"]["labels"]["release"] == "prometheus" for found in (
        rendered.one("ServiceMonitor"), rendered.one("PodMonitor"), rendered.one("PrometheusRule")))  # fmt: skip


def test_dashboards_arrive_as_they_are(of_ci: Callable[[str], Rendered]) -> None:
    """Also their legends, which look like templates of Helm."""
    maps = [found for found in of_ci("ha").of_kind("ConfigMap") if "-dash-" in found["metadata"]["name"]]
    assert len(maps) == len(DASHBOARDS) == 3
    for found in maps:
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert found["metadata"]["annotations"] == {"grafana_folder": "Isthmus"}
        ((name, text),) = found["data"].items()
        assert json.loads(text) == json.loads((CHART / "dashboards" / name).read_text("utf-8"))
        assert json.loads(text)["uid"] == f"isthmus-{name.removesuffix('.json')}"


def test_panels_lie_on_the_grid_and_beside_each_other() -> None:
    for path in DASHBOARDS:
        places = [panel["gridPos"] for panel in json.loads(path.read_text("utf-8"))["panels"]]
        assert all(place["x"] + place["w"] <= 24 for place in places)
        assert len({(place["x"], place["y"]) for place in places}) == len(places)
