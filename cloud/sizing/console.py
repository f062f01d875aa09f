"""Shows a plan to people and scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cloud.sizing.geometry import Geometry
from cloud.sizing.gpus import Gpu
from cloud.sizing.plan import RUNTIME_BYTES, Plan, Wish

_GIB = 2**30


def as_document(geometry: Geometry, gpu: Gpu, wish: Wish, plan: Plan) -> dict[str, Any]:
    """Everything that went in and came out, in base units."""
    return {
        "model": asdict(geometry),
        "gpu": asdict(gpu),
        "wish": asdict(wish),
        "plan": asdict(plan) | {"runtime_bytes": RUNTIME_BYTES},
    }


def as_text(geometry: Geometry, gpu: Gpu, wish: Wish, plan: Plan) -> str:
    """The plan in lines; times are ceilings, and estimates are called so."""
    count = f"{wish.replicas} x {wish.gpus} x {gpu.name}"
    lengths = f"{wish.prompt_tokens} + {wish.output_tokens} tokens"
    within = (
        f"up to {plan.sequences_within_target} side by side"
        if plan.sequences_within_target
        else "not even by one sequence alone"
    )
    rows = (
        ("model", f"{geometry.parameters / 1e9:.2f} G parameters, {geometry.layers} layers, weights {wish.weights}"),
        ("replicas", f"{count} ({gpu.source})"),
        ("weights", f"{plan.weight_bytes / _GIB:.2f} GiB on each GPU"),
        ("activations", f"{plan.activation_bytes / _GIB:.2f} GiB, runtime {RUNTIME_BYTES / _GIB:.2f} GiB (estimates)"),
        ("KV cache", f"{plan.kv_cache_bytes / _GIB:.2f} GiB: {plan.kv.blocks} blocks of {plan.kv.block_tokens} tokens"),
        ("KV tokens", f"{plan.kv.tokens} as vLLM counts them at a context of {wish.context_tokens}"),
        ("concurrent", f"{plan.kv.full_sequences} full contexts; {plan.sequences} requests of {lengths}"),
        ("prefill", f"{plan.prefill_tokens_per_s:,.0f} tokens/s at most, each replica"),
        ("decode", f"{plan.decode_tokens_per_s:,.0f} tokens/s at most, each replica, {plan.sequences} side by side"),
        ("requests", f"{plan.requests_per_s:.2f} per second at most, all replicas"),
        ("TTFT", _against(plan.ttft_ms, wish.ttft_target_ms, met=plan.meets_ttft) + " (empty queue)"),
        ("TPOT", _against(plan.tpot_ms, wish.tpot_target_ms, met=plan.meets_tpot)),
        ("TPOT alone", f"{plan.tpot_alone_ms:.2f} ms; the target is met {within}"),
    )
    return "\n".join(f"{name:<12}{text}" for name, text in rows)


def _against(time_ms: float, target_ms: float, *, met: bool) -> str:
    verdict = "met" if met else "missed, whatever the software does"
    return f"{time_ms:.2f} ms at best; target < {target_ms:g} ms: {verdict}"
