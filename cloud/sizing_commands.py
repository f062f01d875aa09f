"""`isthmus cloud plan`: what replicas of a model on a GPU hold, and how fast they can be at most."""

from __future__ import annotations

import math
from typing import Annotated

import typer

app = typer.Typer()
_MOST_TOKENS = 1 << 31


def _number(value: float) -> float:
    """`value`, which is in its range; what is no number compares as if it were in each."""
    if not math.isfinite(value):
        raise typer.BadParameter("it must be a finite number")
    return value


BatchedTokens = Annotated[int, typer.Option(min=1, max=_MOST_TOKENS, help="Most tokens of one prefill step.")]
Target = Annotated[float, typer.Option(min=0.001, callback=_number, help="Target in milliseconds.")]
Share = Annotated[float, typer.Option(min=0.05, max=1, callback=_number, help="Share of the memory for the engine.")]
KvBytes = Annotated[int | None, typer.Option(min=1, max=1 << 50, help="KV cache of one GPU; unset: what is left.")]


@app.command("plan")
def plan_command(
    model: Annotated[str, typer.Argument(help="Checkpoint folder, its config.json, a prepared model, a known name.")],
    gpu: Annotated[str, typer.Option(help="GPU, such as H100-80GB; a wrong name lists all.")],
    replicas: Annotated[int, typer.Option(min=1, max=10_000, help="Replicas that share the load.")] = 1,
    tensor_parallel: Annotated[int, typer.Option(min=1, max=64, help="GPUs of one replica.")] = 1,
    context: Annotated[int, typer.Option(min=16, max=_MOST_TOKENS, help="Context of one request in tokens.")] = 8192,
    prompt: Annotated[int, typer.Option(min=1, max=_MOST_TOKENS, help="Prompt of a usual request in tokens.")] = 1024,
    output: Annotated[int, typer.Option(min=1, max=_MOST_TOKENS, help="Answer of a usual request in tokens.")] = 256,
    max_num_seqs: Annotated[int, typer.Option(min=1, max=65_536, help="Sequences decoded in one batch.")] = 256,
    batched_tokens: BatchedTokens = 8192,
    weights: Annotated[str, typer.Option(help="Type of the matrices: bf16, fp8 or int4.")] = "bf16",
    kv_type: Annotated[str, typer.Option(help="Type of the KV cache: auto (16 bits) or fp8.")] = "auto",
    kv_cache_bytes: KvBytes = None,
    memory_ratio: Share = 0.9,
    ttft_ms: Target = 50.0,
    tpot_ms: Target = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show weights, KV cache, concurrency and ceilings of a model on a GPU; nothing is started or downloaded."""
    import orjson  # noqa: PLC0415 - like the rest, only this command needs it

    from cloud.sizing import console  # noqa: PLC0415
    from cloud.sizing.geometry import geometry_of  # noqa: PLC0415
    from cloud.sizing.gpus import gpu_named  # noqa: PLC0415
    from cloud.sizing.plan import Wish, kv_type_named, plan, weights_named  # noqa: PLC0415
    from cloud.sizing.sources import config_of  # noqa: PLC0415
    from shared.settings import home  # noqa: PLC0415

    wish = Wish(
        replicas=replicas,
        gpus=tensor_parallel,
        context_tokens=context,
        prompt_tokens=prompt,
        output_tokens=output,
        max_num_seqs=max_num_seqs,
        batched_tokens=batched_tokens,
        memory_ratio=memory_ratio,
        weights=weights_named(weights),
        kv=kv_type_named(kv_type),
        kv_cache_bytes=kv_cache_bytes,
        ttft_target_ms=ttft_ms,
        tpot_target_ms=tpot_ms,
    )
    chosen = gpu_named(gpu)
    geometry = geometry_of(config_of(model, home() / "checkpoints"))
    made = plan(geometry, chosen, wish)
    if as_json:
        typer.echo(orjson.dumps(console.as_document(geometry, chosen, wish, made)).decode())
    else:
        typer.echo(console.as_text(geometry, chosen, wish, made))
