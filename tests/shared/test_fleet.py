"""Wire models of the fleet: what a device may report, and what is refused before any policy reads it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from shared.fleet import BackendState, CloudCapacity, Heartbeat, ServedModel, ThermalLevel, Zone

BEAT: dict[str, Any] = {
    "backend_id": "pi-5",
    "instance": "0123456789abcdef",
    "sequence": 3,
    "url": "http://127.0.0.1:8081",
    "state": "ready",
    "models": [{"model_id": "m", "digest": "sha256:" + "a" * 64, "context_tokens": 4096}],
}


def test_a_heartbeat_survives_the_wire() -> None:
    beat = Heartbeat.model_validate(BEAT)
    assert Heartbeat.model_validate_json(beat.model_dump_json()) == beat
    assert beat.level is ThermalLevel.UNKNOWN
    assert beat.zone is Zone.DEVICE


def test_a_missing_figure_is_none_and_neither_idle_nor_full() -> None:
    beat = Heartbeat.model_validate(BEAT)
    assert (beat.slots_total, beat.slots_busy, beat.queued, beat.decode_tokens_per_s, beat.temperature_c) == (None,) * 5


def test_fields_of_a_newer_agent_are_ignored() -> None:
    assert Heartbeat.model_validate({**BEAT, "mood": "sunny"}).backend_id == "pi-5"


@pytest.mark.parametrize(
    "fields",
    [
        {"backend_id": "a b"},
        {"backend_id": "-a"},
        {"backend_id": "x" * 65},
        {"backend_id": "a\n"},
        {"instance": "short"},
        {"sequence": -1},
        {"url": "ftp://x"},
        {"url": "http://user:pass@host"},
        {"url": "http://a b"},
        {"zone": "cloud"},
        {"state": "sleepy"},
        {"version": 2},
        {"temperature_c": -273.15},
        {"temperature_c": float("nan")},
        {"derate_ratio": 0},
        {"derate_ratio": 1.5},
        {"decode_tokens_per_s": 0},
        {"decode_tokens_per_s": float("inf")},
        {"slots_busy": -1},
        {"models": [{"model_id": ""}]},
        {"models": [{"model_id": "m", "digest": "md5:1"}]},
        {"models": [{"model_id": "m", "context_tokens": 0}]},
        {"models": [{"model_id": "m"}] * 257},
    ],
    ids=str,
)
def test_an_impossible_report_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Heartbeat.model_validate({**BEAT, **fields})


def test_device_and_site_are_the_edge_tier() -> None:
    assert [zone.tier for zone in (Zone.DEVICE, Zone.SITE, Zone.CLOUD)] == ["edge", "edge", "cloud"]


def test_cloud_capacity_of_a_sleeping_model_has_no_figures() -> None:
    capacity = CloudCapacity(model_id="m", state=BackendState.SCALED_TO_ZERO)
    assert capacity.running is None
    assert capacity.kv_cache_use_ratio is None


def test_models_are_values() -> None:
    assert hash(ServedModel(model_id="m")) == hash(ServedModel(model_id="m"))


@pytest.mark.parametrize(
    "field",
    ["sequence", "slots_total", "slots_busy", "queued", "queue_limit", "output_cap_tokens", "memory_available_bytes"],
)
def test_a_count_that_no_answer_could_repeat_is_refused(field: str) -> None:
    """Readers of the fleet get these numbers as JSON, which has room for 64 bits at most."""
    Heartbeat.model_validate(BEAT | {field: 2**53})
    with pytest.raises(ValidationError):
        Heartbeat.model_validate(BEAT | {field: 2**53 + 1})
