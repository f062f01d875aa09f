"""The vLLM engine of a replica on CPU: scheduler and model in one process, for there is one device.

Ray Serve LLM asks vLLM for a worker process of its own on CPU. Scheduler and worker then wait for each other in busy
loops on shared memory: of two cores, one is spent on waiting, beside half a gigabyte and the second load of vLLM.
vLLM asks for the worker in order to bind its OpenMP threads; here they are not bound and their number is inherited.
Internal to Ray and vLLM, like all of `cloud.rayllm`, but loads vLLM, which only replicas may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from vllm.model_executor.models import registry

T = TypeVar("T")


class OneProcessEngine(VLLMEngine):  # type: ignore[misc]  # Ray ships no types
    """`VLLMEngine` that runs the model where it schedules, unless the model spans several devices."""

    def _prepare_engine_config(self, callback_ctx: Any) -> Any:
        # vLLM looks at the model's class in a process of its own, lest that one touches a GPU. Here there is none, and
        # the process would load all of vLLM once more, only to be asked one thing.
        registry._run_in_subprocess = _run_here
        return super()._prepare_engine_config(callback_ctx)

    def _start_async_llm_engine(self, vllm_engine_args: Any, vllm_engine_config: Any, placement_group: Any) -> Any:
        parallel = vllm_engine_config.parallel_config
        if parallel.world_size == 1:
            parallel.distributed_executor_backend = "uni"
        return super()._start_async_llm_engine(vllm_engine_args, vllm_engine_config, placement_group)


def _run_here(function: Callable[[], T]) -> T:
    return function()
