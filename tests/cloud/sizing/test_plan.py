"""Plans of models on GPUs: counts that are exact, ceilings from the formulas, refusals with both numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cloud.cli import app
from cloud.sizing.geometry import Geometry, geometry_of
from cloud.sizing.gpus import GPUS, gpu_named
from cloud.sizing.plan import CPU_BLOCK_TOKENS, KvLayout, Wish, kv_cache, plan
from cloud.sizing.roofline import Load, decode_ms, prefill_ms
from cloud.sizing.sources import PUBLISHED, config_of
from shared.errors import (
    ContextLengthExceeded,
    InsufficientMemory,
    InvalidRequest,
    ModelCorrupt,
    NotFound,
    UnsupportedArchitecture,
)

H100 = GPUS["H100-80GB"]
LLAMA_8B = geometry_of(PUBLISHED["llama-3.1-8b-instruct"])
SMOL = geometry_of(PUBLISHED["smollm2-135m-instruct"])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("smollm2-135m-instruct", 134_515_008),
        ("llama-3.1-8b-instruct", 8_030_261_248),
        ("llama-3.1-70b-instruct", 70_553_706_496),
        ("mistral-7b-instruct-v0.3", 7_248_023_552),
        ("qwen2.5-7b-instruct", 7_615_616_512),
        ("qwen2.5-72b-instruct", 72_706_203_648),
    ],
)
def test_parameters_are_counted_as_published(name: str, parameters: int) -> None:
    assert geometry_of(PUBLISHED[name]).parameters == parameters


def test_a_token_keeps_a_key_and_a_value_for_each_kv_head() -> None:
    """KV-01: grouped heads, not all heads; the head's own length where it is stated."""
    assert LLAMA_8B.kv_elements_per_token() == 2 * 32 * 8 * 128
    long_heads = PUBLISHED["llama-3.1-8b-instruct"] | {"head_dim": 256}
    assert geometry_of(long_heads).kv_elements_per_token() == 2 * 32 * 8 * 256


@pytest.mark.parametrize(("context_tokens", "tokens"), [(512, 11_648), (128, 11_648), (1000, 11_375), (8192, 11_648)])
def test_kv_tokens_are_counted_as_vllm_counts_them(context_tokens: int, tokens: int) -> None:
    """512 MiB in float32 are 91 blocks of 128, of which a context takes whole ones."""
    layout = KvLayout(block_tokens=CPU_BLOCK_TOKENS, element_bytes=4)
    cache = kv_cache(SMOL, 512 * 2**20, context_tokens=context_tokens, layout=layout)
    assert (cache.blocks, cache.tokens) == (91, tokens)


def test_one_sequence_decodes_as_fast_as_memory_is_read_and_a_prompt_as_fast_as_is_multiplied() -> None:
    made = plan(LLAMA_8B, H100, Wish(context_tokens=8192))
    table = LLAMA_8B.vocabulary * LLAMA_8B.hidden
    read_bytes = made.weight_bytes - 2 * table + (1024 + 128) * 131_072
    assert made.tpot_alone_ms == pytest.approx(read_bytes / 3.35e12 * 1000)
    body = 2 * (LLAMA_8B.parameters - 2 * table) * 1024 + 2 * table
    attention = 2 * 32 * 32 * 128 * 1024**2
    assert made.ttft_ms == pytest.approx((body + attention) / 989.4e12 * 1000)
    assert made.weight_bytes == 2 * LLAMA_8B.parameters


def test_the_sequences_within_the_target_meet_it_and_one_more_does_not() -> None:
    made = plan(LLAMA_8B, H100, Wish())
    assert made.meets_ttft
    assert not made.meets_tpot
    fits = replace(Wish(), max_num_seqs=made.sequences_within_target)
    assert plan(LLAMA_8B, H100, fits).meets_tpot
    assert not plan(LLAMA_8B, H100, replace(fits, max_num_seqs=made.sequences_within_target + 1)).meets_tpot


def test_replicas_multiply_requests_and_nothing_else() -> None:
    one, four = (plan(LLAMA_8B, H100, Wish(replicas=n)) for n in (1, 4))
    assert four.requests_per_s == pytest.approx(4 * one.requests_per_s)
    assert replace(four, requests_per_s=0.0) == replace(one, requests_per_s=0.0)


def test_smaller_types_leave_more_cache_and_read_less() -> None:
    plain, small = (plan(LLAMA_8B, H100, Wish(weights=w)) for w in ("bf16", "int4"))
    assert small.weight_bytes < 0.4 * plain.weight_bytes
    assert small.kv.blocks > plain.kv.blocks
    assert small.tpot_alone_ms < plain.tpot_alone_ms
    half = plan(LLAMA_8B, H100, Wish(kv="fp8"))
    assert half.kv.blocks in (2 * plain.kv.blocks, 2 * plain.kv.blocks + 1)


def test_kv_heads_that_are_repeated_over_gpus_cost_memory() -> None:
    qwen = geometry_of(PUBLISHED["qwen2.5-7b-instruct"])
    four = plan(qwen, H100, Wish(gpus=4, kv_cache_bytes=2**30))
    assert four.weight_bytes == math.ceil(2 * qwen.parameters / 4)
    wide = replace(qwen, heads=32, kv_heads=4)
    assert plan(wide, H100, Wish(gpus=8, kv_cache_bytes=2**30)).weight_bytes > math.ceil(2 * wide.parameters / 8)


@given(
    sequences=st.integers(1, 4096),
    more=st.integers(1, 64),
    context=st.integers(1, 131_072),
    gpus=st.sampled_from([1, 2, 8]),
)
def test_more_work_never_takes_less_time(sequences: int, more: int, context: int, gpus: int) -> None:
    load = Load(LLAMA_8B, H100, gpus, 2 * LLAMA_8B.parameters / gpus, 131_072 / gpus, H100.flops_16_bit)
    few, many = decode_ms(load, np.array([sequences, sequences + more], dtype=np.float64), context)
    assert few <= many
    short, long = prefill_ms(load, np.array([context, context + more], dtype=np.float64))
    assert short <= long


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (Wish(gpus=3), InvalidRequest),
        (Wish(context_tokens=200_000), ContextLengthExceeded),
        (Wish(prompt_tokens=8000, output_tokens=500), ContextLengthExceeded),
        (Wish(kv_cache_bytes=80 * 2**30), InsufficientMemory),
        (Wish(kv_cache_bytes=2**20), InsufficientMemory),
        (Wish(memory_ratio=0.1), InsufficientMemory),
    ],
)
def test_what_cannot_be_is_refused(wish: Wish, error: type[Exception]) -> None:
    with pytest.raises(error):
        plan(LLAMA_8B, H100, wish)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"model_type": "mamba2"}, UnsupportedArchitecture),
        ({"model_type": None}, UnsupportedArchitecture),
        ({"model_type": ["llama"]}, UnsupportedArchitecture),
        ({"hidden_size": 10**200}, ModelCorrupt),
        ({"num_hidden_layers": True, "vocab_size": 2**63}, ModelCorrupt),
        ({"model_type": "mistral", "sliding_window": 4096}, UnsupportedArchitecture),
        ({"num_hidden_layers": 0}, ModelCorrupt),
        ({"hidden_size": "many"}, ModelCorrupt),
        ({"num_key_value_heads": 5}, ModelCorrupt),
        ({"vocab_size": None}, ModelCorrupt),
    ],
)
def test_configs_that_cannot_be_planned_are_refused(change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        geometry_of(PUBLISHED["llama-3.1-8b-instruct"] | change)


def test_models_are_found_as_folder_file_prepared_checkpoint_and_name(tmp_path: Path) -> None:
    folder = tmp_path / "mine-0123456789ab"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "from": "folder"}))
    for name in (str(folder), str(folder / "config.json"), "mine", "owner/Mine"):
        assert config_of(name, tmp_path)["from"] == "folder"
    assert config_of("meta-llama/Llama-3.1-8B-Instruct", tmp_path) == PUBLISHED["llama-3.1-8b-instruct"]
    (folder / "config.json").write_text("[]")
    with pytest.raises(ModelCorrupt):
        config_of("mine", tmp_path)


def test_the_nearest_gpu_is_named() -> None:
    assert gpu_named("h100-80gb") is H100
    with pytest.raises(InvalidRequest, match="Did you mean L40S-48GB"):
        gpu_named("L40S")


def test_the_command_prints_the_plan_as_text_and_json() -> None:
    arguments = ["plan", "llama-3.1-8b-instruct", "--gpu", "H100-80GB", "--replicas", "2"]
    text = CliRunner().invoke(app, arguments)
    assert text.exit_code == 0
    assert "442464 as vLLM counts them" in text.stdout
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert document["plan"]["kv"]["blocks"] == 27_654
    assert Geometry(**document["model"]) == LLAMA_8B


@pytest.mark.parametrize(
    "words",
    [
        ["--ttft-ms", "nan"],
        ["--tpot-ms", "inf"],
        ["--memory-ratio", "nan"],
        ["--memory-ratio", "1.01"],
        ["--replicas", "0"],
        ["--context", "1" * 400],
        ["--batched-tokens", "1" * 400],
        ["--kv-cache-bytes", "-1"],
        ["--tensor-parallel", "3"],
        ["--weights", "fp4"],
        ["--gpu", ""],
    ],
)
def test_odd_options_are_refused_in_a_line(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["plan", "llama-3.1-8b-instruct", "--gpu", "H100-80GB", *words])
    assert done.exit_code != 0
    assert isinstance(done.exception, (SystemExit, InvalidRequest))


@pytest.mark.parametrize("model", ["", "a" * 5000, "a\0b", "../../etc/passwd", "*", "[", "/dev/null", "/"])
def test_models_that_are_none_are_refused_in_a_line(model: str, tmp_path: Path) -> None:
    with pytest.raises((NotFound, ModelCorrupt)):
        config_of(model, tmp_path)
