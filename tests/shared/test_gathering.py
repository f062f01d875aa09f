"""Metrics of several processes as one exposition: what is added, what is one process's word, what survives a death."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from shared.gathering import Snapshot, added, exposition_of, snapshot
from shared.telemetry import RouterMetrics, new_registry


def worker(requests: int, in_flight: int, *, store_up: bool, digest: str) -> Snapshot:
    registry = new_registry()
    metrics = RouterMetrics(registry)
    metrics.requests.labels("/v1/chat/completions", "ok").inc(requests)
    metrics.in_flight.set(in_flight)
    metrics.state_store.set(store_up)
    metrics.ttft.labels("edge").observe(0.02)
    metrics.policy_in_force(digest)
    return snapshot(registry)


def read(raw: bytes) -> dict[str, float]:
    samples = [sample for family in text_string_to_metric_families(raw.decode()) for sample in family.samples]
    return {f"{s.name}{sorted(s.labels.items())}": s.value for s in samples}


def test_counts_are_added_and_gauges_follow_their_rule() -> None:
    one, other = worker(3, 2, store_up=True, digest="a"), worker(4, 5, store_up=False, digest="b")
    found = read(exposition_of(one, [other]))
    asked = "[('outcome', 'ok'), ('route', '/v1/chat/completions')]"
    assert found[f"isthmus_router_requests_total{asked}"] == 7
    assert found["isthmus_router_in_flight[]"] == 7
    assert found["isthmus_router_state_store_up[]"] == 0
    assert found["isthmus_router_ttft_seconds_count[('tier', 'edge')]"] == 2
    assert found["isthmus_router_ttft_seconds_bucket[('le', '0.025'), ('tier', 'edge')]"] == 2
    assert found["isthmus_router_policy_info[('digest', 'a')]"] == 1
    assert "isthmus_router_policy_info[('digest', 'b')]" not in found, "the process that is asked speaks for all"


def test_what_a_dead_process_counted_stays_and_what_it_held_does_not() -> None:
    ended = added([], worker(10, 9, store_up=False, digest="a"))
    ended = added(ended, worker(5, 9, store_up=False, digest="a"))
    found = read(exposition_of(worker(1, 1, store_up=True, digest="a"), [ended]))
    assert found["isthmus_router_requests_total[('outcome', 'ok'), ('route', '/v1/chat/completions')]"] == 16
    assert (found["isthmus_router_in_flight[]"], found["isthmus_router_state_store_up[]"]) == (1, 1)


def test_one_process_alone_reads_as_before() -> None:
    one = worker(3, 2, store_up=True, digest="a")
    assert read(exposition_of(one, [])) == read(exposition_of(one, [[]]))
