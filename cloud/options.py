"""Translates one model's settings into Ray Serve LLM options: plain data, decided without Ray.

The values that differ from Ray's defaults, and why:
- every ongoing, target and queue limit is finite (Ray: 1e9), so load can be refused and replicas can be added;
- `nobind`: the automatic binding puts all replicas of a node on the same core;
- `kv_cache_memory_bytes`: the CPU build's environment variable knows whole GiB only;
- streams are not batched by time (Ray: 50 ms), which would show as uneven gaps between tokens;
- replicas drain for `life.drain_s` and are replaced before they are stopped (surge), so a rollout cuts no stream.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cloud.scaling.policy import Goals
from cloud.scaling.serve import IMPORT_PATH
from cloud.settings import CPU_KV_CACHE_BYTES, AcceleratorSettings, AppArgs, AutoscalingSettings, ModelSettings

DEPLOYMENT_PREFIX = "model:"
INGRESS_NAME = "ingress"
SURGE_PERCENT = 100
_PREFIX_ROUTER = "ray.serve.llm.request_router.PrefixCacheAffinityRouter"
_SPIN_COUNT = 2000
"""How long an OpenMP thread waits busily. By default it waits so long that, once anything else wants the cores, the
threads of one engine wait for each other's time slices: small matrix products then take five to seven times as long."""
ROUTING_CPUS = 0.01
"""CPUs of actors that only pass requests on: next to none, but more than a cluster's head has, so none runs there."""


def deployment_name(model_id: str) -> str:
    """Name of the Serve deployment that runs `model_id`, as Ray Serve LLM forms it from the prefix."""
    return DEPLOYMENT_PREFIX + model_id.replace("/", "--").replace(".", "_")


def llm_config(model: ModelSettings, args: AppArgs) -> dict[str, Any]:
    """Keyword arguments of `ray.serve.llm.LLMConfig` for `model`."""
    accelerator = args.accelerator
    config: dict[str, Any] = {
        "model_loading_config": {"model_id": model.model_id, "model_source": model.source},
        "accelerator_config": {"kind": accelerator.kind},
        "engine_kwargs": engine_kwargs(model, accelerator),
        "deployment_config": deployment_config(model, args),
        "placement_group_config": {"bundle_per_worker": _bundle(model, accelerator)},
        "experimental_configs": {"stream_batching_interval_ms": 0},
        "runtime_env": {"env_vars": environment(model, accelerator)},
    }
    if accelerator.type is not None:
        config["accelerator_type"] = accelerator.type
    return config


def engine_kwargs(model: ModelSettings, accelerator: AcceleratorSettings) -> dict[str, Any]:
    """Arguments of the vLLM engine."""
    on_cpu = accelerator.kind == "cpu"
    kwargs: dict[str, Any] = {
        "max_model_len": model.context_tokens,
        "max_num_seqs": model.max_num_seqs,
        "dtype": model.dtype or ("float32" if on_cpu else "bfloat16"),
        "enforce_eager": runs_eagerly(model, accelerator),
    }
    kv_cache_bytes = model.kv_cache_bytes or (CPU_KV_CACHE_BYTES if on_cpu else None)
    if kv_cache_bytes is not None:
        kwargs["kv_cache_memory_bytes"] = kv_cache_bytes
    if model.tool_call_parser is not None:
        kwargs |= {"enable_auto_tool_choice": True, "tool_call_parser": model.tool_call_parser}
    if model.adapters is not None:
        count = model.adapters.count
        kwargs |= {"enable_lora": True, "max_loras": count, "max_cpu_loras": count}
        kwargs["max_lora_rank"] = model.adapters.rank_limit
    return kwargs | model.engine_kwargs


def deployment_config(model: ModelSettings, args: AppArgs) -> dict[str, Any]:
    """Serve options of the model's deployment."""
    scaling = model.autoscaling
    router = {"request_router_config": {"request_router_class": _PREFIX_ROUTER}} if model.routing == "prefix" else {}
    return (
        router
        | {
            "autoscaling_config": _autoscaling(scaling),
            "max_ongoing_requests": scaling.max_ongoing_requests,
            "max_queued_requests": scaling.max_queued_requests,
            # The engine's CPUs are in its bundle; the replica actor itself only passes tokens on.
            "ray_actor_options": {"num_cpus": 0},
        }
        | _life(args)
    )


def ingress_config(args: AppArgs) -> dict[str, Any]:
    """Serve options of the ingress deployment. A fixed number of replicas: it must not scale to zero with models."""
    return {
        "name": INGRESS_NAME,
        "num_replicas": args.ingress.replicas,
        "max_ongoing_requests": args.ingress.max_ongoing_requests,
        "max_queued_requests": args.ingress.max_queued_requests,
        "ray_actor_options": {"num_cpus": ROUTING_CPUS},
    } | _life(args)


def environment(model: ModelSettings, accelerator: AcceleratorSettings) -> dict[str, str]:
    """Environment of the replica and its engine processes."""
    variables = {
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if model.source.startswith("/"):
        variables |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if accelerator.kind == "cpu":
        variables |= {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(model.threads),
            "GOMP_SPINCOUNT": str(_SPIN_COUNT),
        }
        if runs_eagerly(model, accelerator):
            # Without graphs the engine still compiles two small sampling functions at their first use: half a minute
            # of tracing and C++ for what is no slower as it stands.
            variables["TORCHDYNAMO_DISABLE"] = "1"
    return variables


def runs_eagerly(model: ModelSettings, accelerator: AcceleratorSettings) -> bool:
    """Whether the engine compiles no graphs, and on CPU needs no compiler."""
    return accelerator.kind == "cpu" if model.enforce_eager is None else model.enforce_eager


def reserved_cpus(args: AppArgs) -> int:
    """CPUs that all models reserve at full scale, with one over for Serve's own actors."""
    return 1 + sum(model.threads * model.autoscaling.max_replicas for model in args.models)


def _autoscaling(scaling: AutoscalingSettings) -> dict[str, Any]:
    return {
        "min_replicas": scaling.min_replicas,
        "initial_replicas": scaling.min_replicas,
        "max_replicas": scaling.max_replicas,
        "target_ongoing_requests": scaling.target_ongoing_requests,
        "look_back_period_s": scaling.look_back_period_s,
        "policy": {"policy_function": IMPORT_PATH, "policy_kwargs": asdict(goals(scaling))},
        # Decided by the policy; Ray's would come on top.
        "upscale_delay_s": 0.0,
        "downscale_delay_s": 0.0,
        "downscale_to_zero_delay_s": 0.0,
    }


def goals(scaling: AutoscalingSettings) -> Goals:
    """What the scaling policy aims at under these settings."""
    return Goals(
        target_requests=scaling.target_ongoing_requests,
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        up_delay_s=scaling.upscale_delay_s,
        down_delay_s=scaling.downscale_delay_s,
        to_zero_delay_s=scaling.downscale_to_zero_delay_s,
        kv_ceiling_ratio=scaling.kv_ceiling_ratio,
    )


def _life(args: AppArgs) -> dict[str, Any]:
    life = args.life
    return {
        "health_check_period_s": life.health_check_period_s,
        "health_check_timeout_s": life.health_check_timeout_s,
        "graceful_shutdown_timeout_s": life.drain_s,
        "graceful_shutdown_wait_loop_s": 0.5,
        "max_surge_percent": SURGE_PERCENT,
        "backpressure_config": {"status_code": 429, "retry_after_s": life.retry_after_s},
    }


def _bundle(model: ModelSettings, accelerator: AcceleratorSettings) -> dict[str, float]:
    bundle: dict[str, float] = {"CPU": model.threads}
    return bundle | {"GPU": 1} if accelerator.kind == "gpu" else bundle
