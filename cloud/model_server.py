"""One replica of a model: a vLLM engine under Ray Serve LLM, a watchdog over it, and its load.

Beyond stable, like all of `cloud.rayllm`: `LLMServer._run_request`, `LLMServer.engine._engine_client` (the AsyncLLM)
and the callback hook that skips node initialisation.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

from prometheus_client import generate_latest
from ray import serve
from ray.llm._internal.common.callbacks.base import CallbackBase
from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer
from ray.serve.llm.openai_api_models import ChatCompletionRequest, CompletionRequest

from cloud.adapters.resident import ResidentAdapters
from cloud.adapters.serving import adapter_of, base_model, one_error, renamed, resident_adapters
from cloud.adapters.store import unknown_adapter
from cloud.checkpoint import digest_of
from cloud.control_calls import answer_beside_requests
from cloud.control_text import ControlText
from cloud.direct.inbox import Address, Sent
from cloud.direct.outbox import Outbox
from cloud.engine_metrics import of_vllm, own_metrics
from cloud.load import EngineLoad
from cloud.loopback import keep_replica_on_loopback
from cloud.scaling.serve import KV_METRIC
from cloud.settings import AdapterSettings
from shared.errors import DigestMismatch, IsthmusError

_WATCH_PERIOD_S = 0.1
_ENGINE_DEAD_EXIT_CODE = 17
_WARM_UP = ({"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9, "top_k": 20})
"""Sampling paths that compile at first use: 2.5 s and 1.9 s that no client should wait for."""


class LocalModel(CallbackBase):  # type: ignore[misc]  # Ray ships no types
    """Skips node initialisation: the checkpoint is a folder here, and looking for it costs a process and seconds."""

    async def on_before_node_init(self) -> None:
        """Called by the engine before it would download the model."""
        self.ctx.run_init_node = False


class ModelServer(LLMServer):  # type: ignore[misc]  # Ray ships no types
    """One replica: an engine, a watchdog over it, and its load."""

    async def __init__(  # type: ignore[misc]  # Serve awaits constructors
        self,
        llm_config: LLMConfig,
        *,
        expected_digest: str | None,
        adapters: AdapterSettings | None,
        only_loopback: bool,
    ) -> None:
        if only_loopback:
            keep_replica_on_loopback()
        answer_beside_requests()
        self._expected_digest = expected_digest
        self._adapter_settings = adapters
        self._adapters: ResidentAdapters | None = None
        self._outbox = Outbox()
        await super().__init__(llm_config, engine_cls=_engine_class(llm_config))

    async def start(self) -> None:
        """Start the engine; ready only when it has answered.

        Raises:
            DigestMismatch: the checkpoint was prepared from other weights than the configured digest names.
        """
        self._check_digest()
        began_s = time.monotonic()
        await super().start()
        started_s = time.monotonic()
        self._load = EngineLoad()
        self._client.logger_manager.stat_loggers += [self._load, own_metrics(self._client.vllm_config)]
        self._watchdog = asyncio.create_task(self._leave_with_engine())
        if self._adapter_settings is not None:
            model = self._llm_config.model_loading_config
            base = base_model(model.model_id, model.model_source, self._expected_digest)
            self._adapters = resident_adapters(self._adapter_settings, base, self.engine._oai_models)
        self._control_text = ControlText(getattr(self._client.get_tokenizer(), "get_added_vocab", dict)())
        await self._warm_up()
        self._stages_s = {
            "engine": round(started_s - began_s, 1),
            "warm_up": round(time.monotonic() - started_s, 1),
        }

    async def start_stages(self) -> dict[str, float]:
        """Seconds that each stage of this replica's start took."""
        return self._stages_s

    @property
    def _client(self) -> Any:
        return self.engine._engine_client

    async def engine_stats(self) -> dict[str, Any]:
        """Requests that run and wait, the share of the KV cache in use and its size, prefix hits, tokens each second.

        The scheduler reports only while it works, so after the last request ended or was aborted its figures are
        old; the count of unfinished requests never is.
        """
        unfinished = self._client.output_processor.get_num_unfinished_requests()
        waiting = min(self._load.waiting, unfinished)
        ratio = self._load.kv_cache_use_ratio if unfinished else 0.0
        return {
            "running": unfinished - waiting,
            "waiting": waiting,
            "kv_cache_use_ratio": min(1.0, ratio),
            "kv_cache_tokens": self._client.vllm_config.cache_config.kv_cache_size_tokens,
            "prefix_hit_ratio": self._load.prefix_hit_ratio,
            "output_tokens_per_s": round(self._load.output_tokens_per_s, 1),
            "adapters": tuple(self._adapters.resident()) if self._adapters else (),
        }

    async def load_adapter(self, name: str) -> IsthmusError | None:
        """Have the current version of adapter `name` in the engine; what stands against it, if anything does."""
        return await self._settled(name, ResidentAdapters.load)

    async def unload_adapter(self, name: str) -> IsthmusError | None:
        """Let the engine go of adapter `name`; what stands against it, if anything does."""
        return await self._settled(name, ResidentAdapters.unload)

    async def _settled(
        self, name: str, act: Callable[[ResidentAdapters, str], Awaitable[object]]
    ) -> IsthmusError | None:
        """Errors are values on the way between replicas."""
        if self._adapters is None:
            return unknown_adapter()
        try:
            await act(self._adapters, name)
        except IsthmusError as error:
            return error
        return None

    async def engine_metrics(self) -> tuple[str, str]:
        """This replica's name, and vLLM's metrics as vLLM writes them."""
        return serve.get_replica_context().replica_id.unique_id, of_vllm(generate_latest().decode())

    async def _maybe_resolve_lora_from_multiplex(self) -> None:
        """Ray would ask its own loader, which knows remote stores alone."""

    async def _run_request(self, request: Any, **how: Any) -> AsyncGenerator[Any, None]:
        """Run `request` with control tokens in its texts broken, and with the adapter that its model names."""
        name = adapter_of(request.model)
        try:
            if isinstance(request, ChatCompletionRequest):
                request = self._control_text.defuse(request)
            if name is not None and self._adapters is None:
                raise unknown_adapter()
        except IsthmusError as error:
            return one_error(error)
        if name is None:
            answer: AsyncGenerator[Any, None] = await super()._run_request(request, **how)
            return answer
        return self._run_adapted(request, name, **how)

    async def _run_adapted(self, request: Any, name: str, **how: Any) -> AsyncGenerator[Any, None]:
        """Run `request` with adapter `name`, which stays loaded until the answer has ended or is left."""
        adapters, asked = cast("ResidentAdapters", self._adapters), request.model
        try:
            async with adapters.used(name) as engine_name:
                request.model = engine_name
                answer = await super()._run_request(request, **how)
                async with aclosing(renamed(answer, engine_name, asked)) as items:
                    async for item in items:
                        yield item
        except IsthmusError as error:
            yield error

    async def stream_to(self, request: Any, raw_request_info: Any, method: str, address: Address) -> Sent:
        """Run `request` by the engine's `method`; its events go straight to `address`.

        The result comes once all are on their way; with it what is no event, such as a refusal.
        """
        source = await self._run_request(request, engine_method=method, raw_request_info=raw_request_info)
        return await self._outbox.send(address, source)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What the scaling policy is told of this replica."""
        return {KV_METRIC: (await self.engine_stats())["kv_cache_use_ratio"]}

    async def _leave_with_engine(self) -> None:
        """End the replica as soon as its engine is dead: until then it would fail fast, and so draw traffic."""
        while not self._client.errored:  # noqa: ASYNC110 - vLLM offers a flag, not an event
            await asyncio.sleep(_WATCH_PERIOD_S)
        os._exit(_ENGINE_DEAD_EXIT_CODE)

    async def _warm_up(self) -> None:
        for sampling in _WARM_UP:
            request = CompletionRequest(model=self._llm_config.model_id, prompt="a", max_tokens=2, **sampling)
            async for _ in await self.completions(request):
                pass

    def _check_digest(self) -> None:
        found = digest_of(self._llm_config.model_loading_config.model_source)
        if None not in (found, self._expected_digest) and found != self._expected_digest:
            raise DigestMismatch(
                "The checkpoint was prepared from other weights than the digest in the settings names."
            )


def _engine_class(llm_config: LLMConfig) -> Any:
    """The engine for the hardware; None is Ray's own choice."""
    if llm_config.accelerator_config.kind != "cpu":
        return None
    from cloud.engine import OneProcessEngine  # noqa: PLC0415 - loads vLLM, which only replicas need

    return OneProcessEngine
