"""Geometry from metadata alone: windows as the engine allocates them, upper bounds flagged, recurrent kinds refused."""

from __future__ import annotations

import pytest

from edge.memory.geometry import ModelGeometry, expert_columns, geometry_of
from edge.memory.kv import CacheShape, KvType, cache_bytes, kv_bytes, kv_bytes_per_token
from edge.memory.parameters import counted, derived
from shared.errors import ModelCorrupt, UnsupportedArchitecture


def header(architecture: str, **keys: object) -> dict[str, object]:
    """Metadata of `architecture`; `__` stands for a dot."""
    found = {f"{architecture}.{name.replace('__', '.')}": value for name, value in keys.items()}
    return {"general.architecture": architecture, **found}


def qwen3_0_6b() -> ModelGeometry:
    """28 layers, hidden 1024, 16 heads, 8 KV heads, head 128, FFN 3072, vocabulary 151,936."""
    return geometry_of(
        header(
            "qwen3",
            block_count=28,
            context_length=40960,
            embedding_length=1024,
            feed_forward_length=3072,
            attention__head_count=16,
            attention__head_count_kv=8,
            attention__key_length=128,
            attention__value_length=128,
            vocab_size=151936,
        )
    )


def gemma3_270m(**keys: object) -> ModelGeometry:
    """18 layers, of which every sixth attends to everything and the others to 512 tokens."""
    facts: dict[str, object] = {
        "block_count": 18,
        "context_length": 32768,
        "embedding_length": 640,
        "feed_forward_length": 2048,
        "attention__head_count": 4,
        "attention__head_count_kv": 1,
        "attention__key_length": 256,
        "attention__value_length": 256,
        "attention__sliding_window": 512,
        "vocab_size": 262144,
    }
    return geometry_of(header("gemma3", **{**facts, **keys}))


def test_qwen3_0_6b_has_the_parameters_of_its_dimensions() -> None:
    """15.73 M a layer, 440.5 M in layers, 155.6 M embedding, 596.0 M in all; 114,688 B of KV a token at 16 bits."""
    parameters = derived(qwen3_0_6b())
    assert parameters.by_layer == (15_730_944,) * 28
    assert parameters.layers == 440_466_432
    assert parameters.embedding == 155_582_464
    assert parameters.total == 596_049_920
    assert parameters.tied
    assert kv_bytes_per_token(qwen3_0_6b(), KvType.F16) == 114_688


def test_parts_are_told_apart_by_tensor_names() -> None:
    tensors = [
        ("token_embd.weight", 100),
        ("blk.0.attn_q.weight", 10),
        ("blk.1.attn_q.weight", 20),
        ("blk.1.ffn_up.weight", 30),
        ("output_norm.weight", 5),
    ]
    tied = counted(tensors, 2)
    assert (tied.embedding, tied.by_layer, tied.head, tied.other, tied.total) == (100, (10, 50), 0, 5, 165)
    assert tied.tied
    untied = counted([*tensors, ("output.weight", 100)], 2)
    assert (untied.head, untied.total, untied.tied) == (100, 265, False)


def test_windowed_layers_keep_window_and_micro_batch_alone() -> None:
    """Measured on the engine: 3 full layers x context + 15 x 1,024 cells at a micro-batch of 512, for any context."""
    model = gemma3_270m()
    assert [layer for layer, windowed in enumerate(model.windowed_by_layer) if not windowed] == [5, 11, 17]
    per_cell = 1 * (256 + 256) * 2
    for context in (2048, 8192, 32768):
        shape = CacheShape(slots=1, context_tokens=context, ubatch_tokens=512)
        assert cache_bytes(model, shape, KvType.F16) == (3 * context + 15 * 1024) * per_cell
    assert cache_bytes(model, CacheShape(4, 2048, 512), KvType.F16) == 4 * (3 * 2048 + 15 * 1024) * per_cell
    assert cache_bytes(model, CacheShape(1, 512, 512), KvType.F16) == 18 * 512 * per_cell
    assert cache_bytes(model, CacheShape(1, 32768, 512), KvType.F16) < kv_bytes(model, 32768, KvType.F16)


def test_a_window_pattern_in_the_header_wins() -> None:
    assert gemma3_270m(attention__sliding_window_pattern=2).windowed_by_layer == (True, False) * 9
    pattern = (True,) * 17 + (False,)
    assert gemma3_270m(attention__sliding_window_pattern=pattern).windowed_by_layer == pattern


@pytest.mark.parametrize("pattern", [0, -1, True, "half", (True, False), 10**6])
def test_a_pattern_that_cannot_be_meant_counts_every_layer_in_full(pattern: object) -> None:
    model = gemma3_270m(attention__sliding_window_pattern=pattern)
    assert model.window_tokens is None
    assert model.findings == ("sliding_window_in_full",)


def test_a_window_of_an_architecture_whose_pattern_is_not_known_is_an_upper_bound() -> None:
    model = geometry_of(
        header(
            "phi3",
            block_count=4,
            context_length=4096,
            embedding_length=64,
            feed_forward_length=128,
            attention__head_count=4,
            attention__sliding_window=2047,
            vocab_size=100,
        )
    )
    assert model.findings == ("sliding_window_in_full",)
    assert cache_bytes(model, CacheShape(1, 4096, 63), KvType.F16) == kv_bytes(model, 4096, KvType.F16)


@pytest.mark.parametrize("window", [0, None])
def test_no_window_is_no_window(window: int | None) -> None:
    keys = {} if window is None else {"attention__sliding_window": window}
    model = gemma3_270m(**keys) if window is not None else qwen3_0_6b()
    assert (model.window_tokens, model.windowed_by_layer, model.findings) == (None, (), ())


def test_a_window_beyond_any_model_is_corrupt() -> None:
    with pytest.raises(ModelCorrupt) as refused:
        gemma3_270m(attention__sliding_window=-5)
    assert refused.value.param == "gemma3.attention.sliding_window"


@pytest.mark.parametrize(
    "metadata",
    [
        header("mamba", block_count=2),
        header("rwkv7", block_count=2),
        header("jamba", block_count=2),
        header("something-new", block_count=2, ssm__state_size=16),
        header("bert", block_count=2),
        header("llama", attention__causal=False),
    ],
)
def test_what_keeps_a_state_or_generates_nothing_is_refused_by_name(metadata: dict[str, object]) -> None:
    with pytest.raises(UnsupportedArchitecture) as refused:
        geometry_of(metadata)
    assert refused.value.param == "general.architecture"
    assert str(metadata["general.architecture"]) in refused.value.message


def decoder(architecture: str, **keys: object) -> ModelGeometry:
    facts: dict[str, object] = {
        "block_count": 4,
        "context_length": 4096,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention__head_count": 4,
        "vocab_size": 100,
    }
    return geometry_of(header(architecture, **{**facts, **keys}))


def test_kv_latent_attention_is_an_upper_bound_and_flagged() -> None:
    """DeepSeek's dimensions as converted today: one row of 512 + 64 a token and layer; what is planned is not less."""
    model = decoder(
        "deepseek2",
        attention__head_count=128,
        attention__head_count_kv=1,
        attention__kv_lora_rank=512,
        attention__key_length=576,
        attention__value_length=512,
        rope__dimension_count=64,
    )
    assert model.findings == ("latent_attention_in_full",)
    assert kv_bytes_per_token(model, KvType.F16) >= 4 * (512 + 64) * 2


def test_kv_latent_attention_without_a_stated_key_length_is_never_planned_below_its_row() -> None:
    """Embedding over heads would give a fraction of the row that is kept."""
    keys = {"attention__kv_lora_rank": 512, "rope__dimension_count": 64, "attention__head_count": 64}
    assert decoder("deepseek2", attention__head_count_kv=1, **keys).key_length == 576
    assert decoder("deepseek2", attention__head_count_kv=8, **keys).key_length == 72


def test_kv_layers_of_one_architecture_may_keep_nothing() -> None:
    """Attention was taken out of some layers; they have no cache, and the others are counted in full."""
    model = decoder("deci", attention__head_count=(4, 0, 4, 4), attention__head_count_kv=(2, 0, 0, 1))
    assert model.kv_heads_by_layer == (2, 0, 0, 1)
    assert kv_bytes_per_token(model, KvType.F16) == 3 * (16 + 16) * 2


@pytest.mark.parametrize("kv_heads", [(2, 0, 2, 0), (0, 0, 0, 0), 0])
@pytest.mark.parametrize("architecture", ["llama", "brand-new-hybrid"])
def test_kv_layers_that_keep_something_unknown_are_refused_by_name(architecture: str, kv_heads: object) -> None:
    """A hybrid model whose name is not known: its other layers keep a state that no key tells the size of."""
    with pytest.raises(UnsupportedArchitecture, match=architecture) as refused:
        decoder(architecture, attention__head_count_kv=kv_heads)
    assert refused.value.param == f"{architecture}.attention.head_count_kv"


def test_kv_heads_that_differ_from_layer_to_layer_are_summed() -> None:
    model = decoder("openelm", attention__head_count=(4, 8, 8, 4), attention__head_count_kv=(1, 2, 4, 1))
    assert model.key_length == 16, "the largest head, which the layers with fewest heads have"
    assert kv_bytes_per_token(model, KvType.F16) == 8 * (16 + 16) * 2


def test_kv_windowed_layers_with_longer_heads_count_at_the_longer() -> None:
    model = decoder(
        "gemma9", attention__key_length=16, attention__value_length=16, attention__key_length_swa=64,
        attention__value_length_swa=64,
    )  # fmt: skip
    assert (model.key_length, model.value_length) == (64, 64)


@pytest.mark.parametrize(
    "keys",
    [
        {"attention__head_count": (0, 0, 0, 0)},
        {"attention__head_count_kv": (2, 2, 2)},
        {"attention__head_count_kv": 3},
        {"attention__head_count_kv": (2, 2, 2, 3)},
        {"attention__head_count_kv": "2"},
        {"attention__head_count_kv": True},
        {"attention__key_length": 0},
        {"attention__key_length": 1 << 40},
        {"attention__kv_lora_rank": -1},
        {"context_length": 0},
        {"block_count": 1 << 31},
    ],
)
def test_kv_dimensions_that_cannot_be_are_refused_with_their_key(keys: dict[str, object]) -> None:
    with pytest.raises(ModelCorrupt) as refused:
        decoder("llama", **keys)
    (name,) = keys
    assert refused.value.param == f"llama.{name.replace('__', '.')}"


def test_experts_are_counted_where_no_tensors_are_described() -> None:
    keys = {"expert_count": 8, "expert_feed_forward_length": 32, "expert_shared_count": 1}
    metadata = header("moe", **keys)
    model = decoder("moe", **keys)
    assert expert_columns(metadata, model) == (8 + 1) * 32
    assert expert_columns(header("moe"), decoder("moe")) == 128
    plain = derived(decoder("moe")).total
    assert derived(model, feed_forward_columns=288).total == plain + 4 * 3 * 64 * (288 - 128)
    without_dense = header("moe", **keys, block_count=4, context_length=1, embedding_length=64, vocab_size=9)
    without_dense["moe.attention.head_count"] = 4
    assert geometry_of(without_dense).feed_forward_length == 32
