"""MT-01: series are bounded by closed sets, whatever clients send."""

from __future__ import annotations

import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shared.telemetry import OTHER, Bounded, EdgeMetrics, RouterMetrics, exposition, new_registry

_CLIENT_WORDS = {"model", "path", "key", "user", "prompt", "request_id", "backend", "session", "ip"}


@pytest.mark.parametrize("metrics", [EdgeMetrics, RouterMetrics])
def test_every_metric_has_our_prefix_a_help_text_and_no_label_a_client_chooses(metrics: type) -> None:
    registry = new_registry()
    metrics(registry)
    for family in registry.collect():
        assert family.name.startswith("isthmus_")
        assert family.documentation
    made = metrics(new_registry())
    labels = {label for metric in vars(made).values() for label in getattr(metric, "_labelnames", ())}
    assert labels
    assert not labels & _CLIENT_WORDS


def test_mt_01_ten_thousand_names_make_a_fixed_number_of_series() -> None:
    registry = new_registry()
    metrics = RouterMetrics(registry)
    bounded = Bounded(16)
    draw = random.Random(7)
    for _ in range(10_000):
        name = bounded(f"model-{draw.getrandbits(64):x}")
        metrics.requests.labels(name, "ok").inc()
    text = exposition(registry)
    assert len(text) < 1_000_000
    routes = {
        sample.labels["route"]
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == "isthmus_router_requests_total"
    }
    assert len(routes) == 17
    assert OTHER in routes


def test_a_name_once_known_stays_itself() -> None:
    bounded = Bounded(2)
    assert [bounded(name) for name in ("a", "b", "c", "a", "b", "d")] == ["a", "b", OTHER, "a", "b", OTHER]


def test_two_processes_in_one_interpreter_share_nothing() -> None:
    first, second = new_registry(), new_registry()
    EdgeMetrics(first).in_flight.inc()
    EdgeMetrics(second)
    assert b"isthmus_edge_in_flight 1.0" in exposition(first)
    assert b"isthmus_edge_in_flight 0.0" in exposition(second)


def test_who_counts_apart_is_asked_before_anything_is_read() -> None:
    registry, counted = new_registry(), 0
    metrics = RouterMetrics(registry)

    def tell() -> None:
        nonlocal counted
        metrics.requests.labels("/v1/models", "ok").inc(counted)
        counted = 0

    registry.ask_first(tell)
    for _ in range(2):
        counted += 3
        assert registry.get_sample_value("isthmus_router_requests_total", {"route": "/v1/models", "outcome": "ok"}) in (
            3,
            6,
        )
    assert b'isthmus_router_requests_total{outcome="ok",route="/v1/models"} 6.0' in exposition(registry)
