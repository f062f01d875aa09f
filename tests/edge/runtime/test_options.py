"""Values that kill or hang the engine cannot be expressed."""

from __future__ import annotations

from typing import Any

import pytest

from edge.memory.kv import KvType
from edge.runtime.options import EngineOptions
from shared.errors import SettingsError

GOOD: dict[str, Any] = {"model_alias": "m", "context_tokens": 1024, "slots": 2, "threads": 1, "threads_batch": 2}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("context_tokens", 1),
        ("context_tokens", 0),
        ("context_tokens", -1),
        ("context_tokens", 1 << 31),
        ("slots", 0),
        ("slots", -1),
        ("slots", 65),
        ("slots", True),
        ("slots", 1.0),
        ("threads", 0),
        ("threads", -1),
        ("threads_batch", 0),
        ("batch_tokens", 0),
        ("ubatch_tokens", 0),
        ("ubatch_tokens", 129),
        ("prompt_cache_mib", -1),
        ("ping_interval_s", 0),
        ("model_alias", ""),
        ("model_alias", "a b"),
        ("model_alias", "name\n"),
        ("model_alias", "../../etc"),
    ],
)
def test_a_dangerous_value_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        EngineOptions(**{**GOOD, name: value})
    assert caught.value.param == name


def test_a_quantised_cache_needs_flash_attention() -> None:
    EngineOptions(**GOOD, kv_type=KvType.Q8_0)
    with pytest.raises(SettingsError, match="flash attention"):
        EngineOptions(**GOOD, kv_type=KvType.Q8_0, flash_attention=False)


def test_the_wire_carries_the_context_of_all_slots_in_whole_units() -> None:
    wire = EngineOptions(**{**GOOD, "context_tokens": 1000}).wire()
    assert wire["n_ctx"] == 2 * 1024
    assert wire["n_parallel"] == 2
    assert (wire["n_batch"], wire["n_ubatch"], wire["cache_ram_mib"], wire["sse_ping_interval"]) == (128, 63, 0, 1)
