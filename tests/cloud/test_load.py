"""What the engine's steps add up to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cloud.load import EngineLoad


def scheduler(waiting: int = 0, used: float = 0.0, hits: int = 0, queries: int = 0) -> SimpleNamespace:
    looked_up = SimpleNamespace(hits=hits, queries=queries)
    return SimpleNamespace(num_waiting_reqs=waiting, kv_cache_usage=used, prefix_cache_stats=looked_up)


def test_figures_of_the_last_step_and_hits_over_many() -> None:
    load = EngineLoad()
    assert load.prefix_hit_ratio is None
    load.record(scheduler(2, 0.5, hits=10, queries=40))
    load.record(scheduler(1, 0.25, hits=30, queries=40), None)
    load.record(scheduler(1, 0.25))
    assert (load.waiting, load.kv_cache_use_ratio, load.prefix_hit_ratio) == (1, 0.25, 0.5)
    load.record(None, None)
    assert load.waiting == 1


def test_tokens_are_counted_over_five_seconds_and_forgotten() -> None:
    now_s = [0.0]
    load = EngineLoad(lambda: now_s[0])
    for _ in range(10):
        load.record(None, SimpleNamespace(num_generation_tokens=5))
        now_s[0] += 0.5
    assert load.output_tokens_per_s == pytest.approx(10)
    now_s[0] += 6
    assert load.output_tokens_per_s == 0
