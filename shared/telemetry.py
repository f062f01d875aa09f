"""Every metric of Isthmus in one place: name, unit, labels, and the closed set each label comes from.

A label never holds what a client can choose freely (model, path, key, user, request id). Backend ids come from
enrolment or settings and are bounded by `bounded()`; anything beyond the bound is counted under `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

OTHER = "other"
CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_SHORT_SECONDS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)


class Bounded:
    """Maps free names to themselves for the first `limit` seen, then to `other`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) < self._limit:
            self._known.add(name)
            return name
        return OTHER


class HttpMetrics:
    """What every HTTP process of ours counts; `process` is `router` or `edge`."""

    def __init__(self, registry: CollectorRegistry, process: str) -> None:
        self.requests = Counter(
            f"isthmus_{process}_requests_total",
            "Requests by route and outcome.",
            ("route", "outcome"),
            registry=registry,
        )
        self.in_flight = Gauge(f"isthmus_{process}_in_flight", "Requests being served now.", registry=registry)
        self.cancelled = Counter(
            f"isthmus_{process}_cancelled_total",
            "Requests that the client left before the end.",
            registry=registry,
        )
        self.trace_spans = Counter(
            f"isthmus_{process}_trace_spans_total",
            "Spans of recorded traces by what became of them.",
            ("outcome",),
            registry=registry,
        )

    def spans_ended_as(self, outcome: str, count: int) -> None:
        """Count spans: `exported`, `queue_full`, `export_failed` or `shutdown`. From any thread."""
        self.trace_spans.labels(outcome).inc(count)


class EdgeMetrics(HttpMetrics):
    """Metrics of the edge agent."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry, "edge")
        self.slots = Gauge("isthmus_edge_slots", "Slots of the engine.", ("state",), registry=registry)
        self.queued = Gauge("isthmus_edge_queued", "Requests waiting for a slot.", registry=registry)
        self.engine_ready = Gauge("isthmus_edge_engine_ready", "1 while the engine answers.", registry=registry)
        self.engine_restarts = Counter(
            "isthmus_edge_engine_restarts_total",
            "Engine processes started again.",
            ("reason",),
            registry=registry,
        )
        self._declare_heat(registry)
        self.memory_available = Gauge(
            "isthmus_edge_memory_available_bytes", "Memory that can be had; absent when unknown.", registry=registry
        )
        self.memory_steps = Gauge(
            "isthmus_edge_memory_steps_down", "Steps below the full memory plan.", registry=registry
        )
        self.ttft = Histogram(
            "isthmus_edge_ttft_seconds", "Time to first content.", buckets=_SECONDS, registry=registry
        )
        self.heartbeats = Counter(
            "isthmus_edge_heartbeats_total", "Heartbeats by outcome.", ("outcome",), registry=registry
        )
        self.adapter_loads = Counter(
            "isthmus_edge_adapter_loads_total", "Adapters loaded, by outcome.", ("outcome",), registry=registry
        )
        self.adapter_hits = Counter(
            "isthmus_edge_adapter_hits_total", "Requests whose adapters were loaded already.", registry=registry
        )
        self.adapter_evictions = Counter(
            "isthmus_edge_adapter_evictions_total", "Adapters let go of.", registry=registry
        )
        self.adapters_resident = Gauge("isthmus_edge_adapters_resident", "Adapters loaded now.", registry=registry)
        self.speculation = Gauge(
            "isthmus_edge_speculation",
            "1 for the speculation mode in force, 0 for one that must not run; both with the reason.",
            ("mode", "reason"),
            registry=registry,
        )

    def _declare_heat(self, registry: CollectorRegistry) -> None:
        self.temperature = Gauge(
            "isthmus_edge_temperature_celsius",
            "Hottest plausible sensor; absent when unknown.",
            registry=registry,
        )
        self.level = Gauge("isthmus_edge_thermal_level", "1 for the level in force.", ("level",), registry=registry)
        self.throttle_in = Gauge(
            "isthmus_edge_seconds_to_throttle",
            "Predicted time to the next thermal level under the present load; absent when not known or not in sight.",
            registry=registry,
        )
        self.sensors = Gauge(
            "isthmus_edge_sensors", "Temperature sensors by how far they are trusted.", ("state",), registry=registry
        )
        self.watts = Gauge(
            "isthmus_edge_power_watts", "Power of the processor packages; absent when unreadable.", registry=registry
        )
        self.joules_per_token = Gauge(
            "isthmus_edge_energy_joules_per_token",
            "Energy of the processor packages for one output token; absent when unreadable.",
            registry=registry,
        )


class RouterMetrics(HttpMetrics):
    """Metrics of the router."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry, "router")
        self._declare_decisions(registry)
        self._declare_policy(registry)
        self._declare_fleet(registry)

    def _declare_decisions(self, registry: CollectorRegistry) -> None:
        self.decisions = Counter(
            "isthmus_router_decisions_total",
            "Decisions by class, tier chosen and reason.",
            ("privacy_class", "tier", "reason"),
            registry=registry,
        )
        self.rejections = Counter(
            "isthmus_router_rejections_total",
            "Backends ruled out, by reason.",
            ("reason",),
            registry=registry,
        )
        self.attempts = Counter(
            "isthmus_router_attempts_total",
            "Attempts by tier and outcome.",
            ("tier", "outcome"),
            registry=registry,
        )
        self.classify = Histogram(
            "isthmus_router_classify_seconds",
            "Time to scan a body.",
            buckets=_SHORT_SECONDS,
            registry=registry,
        )
        self.scanner_errors = Counter(
            "isthmus_router_scanner_errors_total", "Scans that did not finish.", ("cause",), registry=registry
        )
        self.answer_findings = Counter(
            "isthmus_router_answer_findings_total", "Findings replaced in answers.", ("kind",), registry=registry
        )
        self.ttft = Histogram(
            "isthmus_router_ttft_seconds",
            "Time to first content.",
            ("tier",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.ttft_predicted = Histogram(
            "isthmus_router_ttft_predicted_seconds",
            "Predicted time to first token of the backend that was used.",
            ("tier",),
            buckets=_SECONDS,
            registry=registry,
        )

    def _declare_policy(self, registry: CollectorRegistry) -> None:
        self.policy = Gauge(
            "isthmus_router_policy_info",
            "1 for the policy in force, by the digest that audit records carry; earlier ones are not listed.",
            ("digest",),
            registry=registry,
        )
        self.policy_reloads = Counter(
            "isthmus_router_policy_reloads_total",
            "Changes of the policy file, by outcome.",
            ("outcome",),
            registry=registry,
        )
        self.policy_file_refused = Gauge(
            "isthmus_router_policy_file_refused",
            "1 while the policy file as it is was refused, and an earlier policy is in force.",
            registry=registry,
        )

    def policy_in_force(self, digest: str, outcome: str | None = None) -> None:
        """Show the policy in force; `outcome` of a reload is `applied`, `unchanged` or `refused`."""
        self.policy.clear()
        self.policy.labels(digest).set(1)
        if outcome is not None:
            self.policy_reloads.labels(outcome).inc()
        if outcome != "unchanged":
            self.policy_file_refused.set(outcome == "refused")

    def _declare_fleet(self, registry: CollectorRegistry) -> None:
        self.backends = Gauge(
            "isthmus_router_backends",
            "Known backends by zone and state.",
            ("zone", "state"),
            registry=registry,
        )
        self.stale = Gauge(
            "isthmus_router_stale_backends",
            "Agents that have been silent for longer than the policy allows; they get no requests.",
            registry=registry,
        )
        self.breaker = Gauge("isthmus_router_breakers", "Breakers by state.", ("state",), registry=registry)
        self.audit_lost = Counter(
            "isthmus_router_audit_lost_total",
            "Audit records of public requests that were dropped.",
            registry=registry,
        )
        self.state_store = Gauge("isthmus_router_state_store_up", "1 while the state store answers.", registry=registry)


class Registry(CollectorRegistry):
    """The metrics of one process. Who counts by itself, because a lock and a look-up for each event cost too much, is
    asked for what it has whenever they are read."""

    def __init__(self) -> None:
        super().__init__()
        self._tellers: list[Callable[[], None]] = []

    def ask_first(self, tell: Callable[[], None]) -> None:
        """Let `tell` bring the metrics up to date before they are read."""
        self._tellers.append(tell)

    def collect(self) -> Iterable[Metric]:
        for tell in self._tellers:
            tell()
        return super().collect()


def new_registry() -> Registry:
    """A registry of its own for each process or test, so that nothing is global."""
    return Registry()


def exposition(registry: CollectorRegistry) -> bytes:
    """The registry in the Prometheus text format."""
    return generate_latest(registry)
