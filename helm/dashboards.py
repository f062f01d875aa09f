"""Describes the Grafana dashboards of the chart, one line a panel, and turns them into Grafana's JSON.

`helm/generate.py` writes them to isthmus/dashboards; a test parses every expression and looks up every metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WIDTH, COLUMNS, HEIGHT = 8, 3, 8
"""Of one panel, in Grafana's grid of 24 columns."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One time series: what it shows, its unit in Grafana's words, and an expression for each legend."""

    title: str
    unit: str
    queries: dict[str, str]


@dataclass(frozen=True)
class Dashboard:
    """One page; its name is its file's."""

    name: str
    title: str
    panels: tuple[Panel, ...]


ROUTER = '{namespace=~"$namespace",service=~".*-router"}'
RAY = '{namespace=~"$namespace"}'


def _rate(metric: str, by: str, of: str = ROUTER) -> str:
    return f"sum by ({by}) (rate({metric}{of}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str = "", of: str = ROUTER) -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{of}[$__rate_interval])))"


DASHBOARDS = (
    Dashboard(
        "router",
        "Isthmus: router",
        (
            Panel("Requests by outcome", "reqps", {"{{outcome}}": _rate("isthmus_router_requests_total", "outcome")}),
            Panel("Requests in flight", "short", {"{{pod}}": f"sum by (pod) (isthmus_router_in_flight{ROUTER})"}),
            Panel("Requests that the client left", "reqps", {"left": _rate("isthmus_router_cancelled_total", "pod")}),
            Panel("Decisions by tier", "reqps", {"{{tier}}": _rate("isthmus_router_decisions_total", "tier")}),
            Panel(
                "Decisions by class",
                "reqps",
                {"{{privacy_class}}": _rate("isthmus_router_decisions_total", "privacy_class")},
            ),
            Panel("Decisions by reason", "reqps", {"{{reason}}": _rate("isthmus_router_decisions_total", "reason")}),
            Panel(
                "Time to first content",
                "s",
                {
                    "{{tier}} p50": _quantile(0.5, "isthmus_router_ttft_seconds", "tier"),
                    "{{tier}} p95": _quantile(0.95, "isthmus_router_ttft_seconds", "tier"),
                },
            ),
            Panel(
                "Mean time to first token, predicted by observed",
                "percentunit",
                {
                    "{{tier}}": f"{_rate('isthmus_router_ttft_predicted_seconds_sum', 'tier')}"
                    f" / {_rate('isthmus_router_ttft_seconds_sum', 'tier')}"
                },
            ),
            Panel(
                "Attempts by tier and outcome",
                "reqps",
                {"{{tier}} {{outcome}}": _rate("isthmus_router_attempts_total", "tier, outcome")},
            ),
            Panel("Backends ruled out", "reqps", {"{{reason}}": _rate("isthmus_router_rejections_total", "reason")}),
            Panel(
                "Backends by zone and state",
                "short",
                {"{{zone}} {{state}}": f"max by (zone, state) (isthmus_router_backends{ROUTER}) > 0"},
            ),
            Panel("Breakers", "short", {"{{state}}": f"max by (state) (isthmus_router_breakers{ROUTER})"}),
            Panel(
                "Time of the privacy scan",
                "s",
                {
                    "p50": _quantile(0.5, "isthmus_router_classify_seconds"),
                    "p99": _quantile(0.99, "isthmus_router_classify_seconds"),
                },
            ),
            Panel(
                "Scans that did not finish",
                "reqps",
                {"{{cause}}": _rate("isthmus_router_scanner_errors_total", "cause")},
            ),
            Panel(
                "State store and audit",
                "short",
                {
                    "store up": f"min(isthmus_router_state_store_up{ROUTER})",
                    "silent agents": f"max(isthmus_router_stale_backends{ROUTER})",
                    "records lost": f"sum(increase(isthmus_router_audit_lost_total{ROUTER}[$__rate_interval]))",
                },
            ),
            Panel(
                "Policy file",
                "short",
                {
                    "policies in force": f"count(count by (digest) (isthmus_router_policy_info{ROUTER}))",
                    "changes {{outcome}}": "sum by (outcome) "
                    f"(increase(isthmus_router_policy_reloads_total{ROUTER}[$__rate_interval]))",
                    "routers that refuse the file": f"sum(isthmus_router_policy_file_refused{ROUTER})",
                },
            ),
            Panel(
                "Findings replaced in answers",
                "reqps",
                {"{{kind}}": _rate("isthmus_router_answer_findings_total", "kind")},
            ),
            Panel("Spans of traces", "short", {"{{outcome}}": _rate("isthmus_router_trace_spans_total", "outcome")}),
        ),
    ),
    Dashboard(
        "cloud",
        "Isthmus: cloud tier",
        (
            Panel(
                "Requests in the engines",
                "short",
                {
                    "running {{model_name}}": f"sum by (model_name) (ray_vllm_num_requests_running{RAY})",
                    "waiting {{model_name}}": f"sum by (model_name) (ray_vllm_num_requests_waiting{RAY})",
                },
            ),
            Panel(
                "Use of the KV cache",
                "percentunit",
                {"{{model_name}}": f"max by (model_name) (ray_vllm_kv_cache_usage_perc{RAY})"},
            ),
            Panel(
                "Tokens",
                "short",
                {
                    "generated": _rate("ray_vllm_generation_tokens_total", "model_name", RAY),
                    "prompt": _rate("ray_vllm_prompt_tokens_total", "model_name", RAY),
                },
            ),
            Panel(
                "Time to first token",
                "s",
                {
                    "p50": _quantile(0.5, "ray_vllm_time_to_first_token_seconds", of=RAY),
                    "p95": _quantile(0.95, "ray_vllm_time_to_first_token_seconds", of=RAY),
                },
            ),
            Panel(
                "Hits of the prefix cache",
                "percentunit",
                {
                    "{{model_name}}": f"{_rate('ray_vllm_prefix_cache_hits_total', 'model_name', RAY)}"
                    f" / {_rate('ray_vllm_prefix_cache_queries_total', 'model_name', RAY)}"
                },
            ),
            Panel(
                "Preemptions", "short", {"{{model_name}}": _rate("ray_vllm_num_preemptions_total", "model_name", RAY)}
            ),
            Panel(
                "Healthy replicas",
                "short",
                {"{{deployment}}": f"sum by (deployment) (ray_serve_deployment_replica_healthy{RAY})"},
            ),
            Panel(
                "Queued before a replica",
                "short",
                {"{{deployment}}": f"sum by (deployment) (ray_serve_deployment_queued_queries{RAY})"},
            ),
            Panel(
                "In replicas now",
                "short",
                {"{{deployment}}": f"sum by (deployment) (ray_serve_replica_processing_queries{RAY})"},
            ),
            Panel(
                "Replicas that autoscaling aims at",
                "short",
                {"{{deployment}}": f"max by (deployment) (ray_serve_autoscaling_target_replicas{RAY})"},
            ),
            Panel(
                "Ready, and an upgrade under way",
                "short",
                {
                    "ready": 'max(kuberay_service_condition_ready{namespace=~"$namespace",condition!="false"})',
                    "upgrade": "max(kuberay_service_condition_upgrade_in_progress"
                    '{namespace=~"$namespace",condition!="false"})',
                },
            ),
        ),
    ),
    Dashboard(
        "edge",
        "Isthmus: edge agents",
        (
            Panel("Requests by outcome", "reqps", {"{{outcome}}": _rate("isthmus_edge_requests_total", "outcome", "")}),
            Panel("Slots", "short", {"{{instance}} {{state}}": "sum by (instance, state) (isthmus_edge_slots)"}),
            Panel("Waiting for a slot", "short", {"{{instance}}": "isthmus_edge_queued"}),
            Panel("Hottest sensor", "celsius", {"{{instance}}": "isthmus_edge_temperature_celsius"}),
            Panel("Thermal level", "short", {"{{instance}} {{level}}": "isthmus_edge_thermal_level == 1"}),
            Panel("Time to the next level", "s", {"{{instance}}": "isthmus_edge_seconds_to_throttle"}),
            Panel(
                "Sensors not trusted",
                "short",
                {"{{instance}} {{state}}": 'isthmus_edge_sensors{state=~"missing|absurd|stuck"}'},
            ),
            Panel("Energy of a token", "joule", {"{{instance}}": "isthmus_edge_energy_joules_per_token"}),
            Panel(
                "Time to first content",
                "s",
                {
                    "p50": _quantile(0.5, "isthmus_edge_ttft_seconds", of=""),
                    "p95": _quantile(0.95, "isthmus_edge_ttft_seconds", of=""),
                },
            ),
            Panel("Engine answers", "short", {"{{instance}}": "isthmus_edge_engine_ready"}),
            Panel(
                "Engines started again",
                "short",
                {"{{reason}}": "sum by (reason) (increase(isthmus_edge_engine_restarts_total[$__rate_interval]))"},
            ),
            Panel("Heartbeats", "reqps", {"{{outcome}}": _rate("isthmus_edge_heartbeats_total", "outcome", "")}),
            Panel("Memory available", "bytes", {"{{instance}}": "isthmus_edge_memory_available_bytes"}),
            Panel("Memory given back", "short", {"{{instance}}": "isthmus_edge_memory_steps_down"}),
            Panel("Speculation", "short", {"{{instance}} {{mode}}": "isthmus_edge_speculation == 1"}),
            Panel("Power", "watt", {"{{instance}}": "isthmus_edge_power_watts"}),
            Panel("Adapters loaded", "short", {"{{instance}}": "isthmus_edge_adapters_resident"}),
            Panel(
                "Adapters: loads, hits, evictions",
                "reqps",
                {
                    "load {{outcome}}": _rate("isthmus_edge_adapter_loads_total", "outcome", ""),
                    "hit": "sum(rate(isthmus_edge_adapter_hits_total[$__rate_interval]))",
                    "eviction": "sum(rate(isthmus_edge_adapter_evictions_total[$__rate_interval]))",
                },
            ),
            Panel("Spans of traces", "short", {"{{outcome}}": _rate("isthmus_edge_trace_spans_total", "outcome", "")}),
        ),
    ),
)


def grafana(dashboard: Dashboard) -> Json:
    """The dashboard as Grafana imports it; data source and namespace are its variables."""
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    namespace = {
        "name": "namespace",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "query": {"query": "label_values(up, namespace)", "refId": "namespace"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "uid": f"isthmus-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["isthmus"],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source, namespace]},
        "panels": [_panel(panel, number) for number, panel in enumerate(dashboard.panels)],
    }


def _panel(panel: Panel, number: int) -> Json:
    source = {"type": "prometheus", "uid": "$datasource"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"w": WIDTH, "h": HEIGHT, "x": number % COLUMNS * WIDTH, "y": number // COLUMNS * HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": source, "expr": expression, "legendFormat": legend}
            for place, (legend, expression) in enumerate(panel.queries.items())
        ],
    }
