"""Everything that depends on Ray Serve LLM beyond its stable names, in one place; Ray is pinned for its sake.

Beyond stable: `make_fastapi_ingress(app=…)`, `OpenAiIngress._get_response`, `LLMServer.engine._engine_client` (vLLM's
AsyncLLM), the callback hook that skips node initialisation, and the shape of the engine's error responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from ray.exceptions import RayError
from ray.llm._internal.common.callbacks.base import CallbackBase
from ray.llm._internal.serve.core.configs.openai_api_models import ErrorResponse
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer
from ray.serve.llm.ingress import OpenAiIngress, make_fastapi_ingress
from ray.serve.llm.openai_api_models import ChatCompletionRequest, CompletionRequest, EmbeddingRequest
from ray.util.metrics import Counter
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from cloud.adapters.resident import ResidentAdapters
from cloud.adapters.serving import adapter_of, base_model, one_error, renamed, resident_adapters, store_of
from cloud.adapters.store import unknown_adapter
from cloud.awake import Awake
from cloud.checkpoint import digest_of
from cloud.control_text import ControlText
from cloud.guard import Guard, unknown_model
from cloud.load import EngineLoad
from cloud.loopback import keep_replica_on_loopback
from cloud.refusals import engine_failed, of_event, translated
from cloud.scaling.serve import KV_METRIC
from cloud.settings import AdapterSettings, AppArgs, LifeSettings
from cloud.spans import Traced, watched
from cloud.streams import EventStream
from shared.errors import (
    BackendError,
    CapacityError,
    DigestMismatch,
    Draining,
    InvalidRequest,
    IsthmusError,
    NotFound,
    NotReady,
    Overloaded,
)
from shared.openai.envelope import envelope_bytes, error_event
from shared.tracing.build import OnSpans

_WATCH_PERIOD_S = 0.1
_ENGINE_DEAD_EXIT_CODE = 17
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
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
        self._expected_digest = expected_digest
        self._adapter_settings = adapters
        self._adapters: ResidentAdapters | None = None
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
        self._client.logger_manager.stat_loggers.append(self._load)
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

    async def _maybe_resolve_lora_from_multiplex(self) -> None:
        """Ray would ask its own loader, which knows remote stores alone."""

    async def _run_request(self, request: Any, **how: Any) -> AsyncGenerator[Any, None]:
        """Run `request` with control tokens in its texts broken, and with the adapter that its model names."""
        asked = request.model
        name = adapter_of(asked)
        try:
            if isinstance(request, ChatCompletionRequest):
                request = self._control_text.defuse(request)
            if name is not None:
                if self._adapters is None:
                    raise unknown_adapter()
                # The name that the engine knows this version by.
                request.model = await self._adapters.engine_name(name)
        except IsthmusError as error:
            return one_error(error)
        answer: AsyncGenerator[Any, None] = await super()._run_request(request, **how)
        return answer if name is None else renamed(answer, request.model, asked)

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


class Ingress(OpenAiIngress):  # type: ignore[misc]  # Ray ships no types
    """The OpenAI routes over the model deployments; drains on request and keeps our error shape."""

    def __init__(
        self, *, life: LifeSettings, adapters: dict[str, AdapterSettings], only_loopback: bool, **kwargs: Any
    ) -> None:
        if only_loopback:
            keep_replica_on_loopback()
        super().__init__(**kwargs)
        self._life = life
        self._awake = Awake()
        self._adapter_stores = {model_id: store_of(each, model_id) for model_id, each in adapters.items()}
        self._draining = False
        self._open = 0

    async def chat(self, body: ChatCompletionRequest, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._answer(body, request, method="chat", prompt_field="messages")

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._answer(body, request, method="completions", prompt_field="prompt")

    async def embeddings(self, body: EmbeddingRequest, request: Request) -> Response:
        """POST /v1/embeddings."""
        return await self._answer(body, request, method="embeddings", prompt_field="input")

    async def models(self) -> dict[str, Any]:
        """GET /v1/models: every configured model, also one that is scaled to zero."""
        cards = [self._card(model_id) for model_id in self._model_cards]
        for model_id, store in self._adapter_stores.items():
            for name in await asyncio.to_thread(store.names):
                with contextlib.suppress(IsthmusError):
                    cards.append(await asyncio.to_thread(self._adapter_card, model_id, name))
        return {"object": "list", "data": cards}

    async def model_data(self, model: str) -> dict[str, Any]:
        """GET /v1/models/{model}."""
        base, _, adapter = model.partition(":")
        if base not in self._model_cards:
            raise unknown_model()
        if not adapter:
            return self._card(model)
        return await asyncio.to_thread(self._adapter_card, base, adapter)

    async def begin_drain(self) -> None:
        """Refuse new requests from now on; those that run go on."""
        self._draining = True

    async def open_requests(self) -> int:
        """Requests whose answer is not complete."""
        return self._open

    def _card(self, model_id: str) -> dict[str, Any]:
        facts: dict[str, Any] = self._model_cards[model_id]
        return {"id": model_id, "object": "model", "created": 0, "owned_by": "isthmus"} | facts

    def _adapter_card(self, base: str, name: str) -> dict[str, Any]:
        store = self._adapter_stores.get(base)
        if store is None:
            raise unknown_adapter()
        digest = store.current(name).manifest.digest
        return self._card(base) | {"id": f"{base}:{name}", "parent": base, "digest": digest}

    async def _require_adapter(self, model: str) -> None:
        """Raises NotFound for an adapter that is not registered."""
        base, colon, name = model.partition(":")
        store = self._adapter_stores.get(base)
        if colon and not (store is not None and await asyncio.to_thread(store.has, name)):
            raise unknown_adapter()

    def _get_configured_serve_handle(self, model_id: str) -> Any:
        """A handle to any replica: each finds its adapters itself, and none is waited for because it has one."""
        return super()._get_configured_serve_handle(model_id.partition(":")[0])

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    async def _answer(self, body: Any, request: Request, *, method: str, prompt_field: str) -> Response:
        if self._draining:
            raise Draining("The cloud tier is shutting down.")
        await self._require_adapter(body.model)
        with self._counted():
            source = self._get_response(body=body, call_method=method, raw_request=request)
            items = self._items(source, body.model, prompt_field)
            stream = bool(getattr(body, "stream", False))
            items = watched(request.scope, items, body.model, stream=stream)
            events = EventStream(items, self._life.keepalive_s)
            if stream:
                await events.open()
            else:
                return Response((await anext(items)).model_dump_json(), media_type="application/json")
        return StreamingResponse(self._stream(events), media_type="text/event-stream", headers=_STREAM_HEADERS)

    async def _items(
        self, source: AsyncGenerator[Any, None], model: str, prompt_field: str
    ) -> AsyncGenerator[Any, None]:
        """What the replica sends: encoded events of a stream, or one whole response.

        Raises:
            IsthmusError: the engine refused or failed, or the replica is gone.
        """
        try:
            async for batch in source:
                for item in batch if isinstance(batch, list) else [batch]:
                    if isinstance(item, IsthmusError):
                        raise item
                    if isinstance(item, ErrorResponse):
                        details = item.error
                        param = getattr(details, "param", None)
                        raise translated(details.message, details.code, param, prompt_field=prompt_field)
                    if isinstance(item, str):
                        item = item.encode()
                        if (refused := of_event(item, prompt_field=prompt_field)) is not None:
                            raise refused
                    yield item
        except BackPressureError:
            raise await self._refusal(model) from None
        except DeploymentUnavailableError:
            raise NotReady("The model is not available now.", retry_after_s=self._life.cold_retry_after_s) from None
        except RayError as error:
            raise engine_failed() from error

    async def _refusal(self, model: str) -> CapacityError:
        """Why the queue is full: replicas that are busy soon have room, one that must start first takes longer."""
        if await self._awake.has_replica(model.partition(":")[0]):
            return Overloaded("All replicas are busy and the queue is full.", retry_after_s=self._life.retry_after_s)
        return NotReady(
            "The model is being started and its queue is full.", retry_after_s=self._life.cold_retry_after_s
        )

    async def _stream(self, events: EventStream) -> AsyncIterator[bytes]:
        """Events as they come; a failure in the middle is one error event, after which no `[DONE]` follows."""
        with self._counted():
            try:
                async for event in events:
                    yield event
            except IsthmusError as error:
                yield error_event(error)


_ROUTES = {
    "models": lambda app: app.get("/v1/models"),
    "model_data": lambda app: app.get("/v1/models/{model:path}"),
    "chat": lambda app: app.post("/v1/chat/completions"),
    "completions": lambda app: app.post("/v1/completions"),
    "embeddings": lambda app: app.post("/v1/embeddings"),
}


def ingress_class(args: AppArgs) -> Any:
    """`Ingress` with its routes, behind the guard; an application of our own, without Ray's open CORS and errors."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(
        Guard,
        body_limit_bytes=args.ingress.body_limit_bytes,
        sequences={model.model_id: model.max_num_seqs for model in args.models},
        keys=tuple(each.key() for each in args.keys),
    )
    if args.tracing.endpoint is not None:
        app.add_middleware(Traced, settings=args.tracing, new_count=span_count)
    app.add_exception_handler(IsthmusError, on_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    return make_fastapi_ingress(Ingress, endpoint_map=_ROUTES, app=app)


def span_count() -> OnSpans:
    """What counts spans by what became of them, among the metrics of Ray."""
    counter = Counter("isthmus_cloud_trace_spans", "Spans by what became of them.", tag_keys=("outcome",))
    return lambda outcome, count: counter.inc(count, {"outcome": outcome})


async def on_error(_: Request, error: Exception) -> Response:
    """The OpenAI envelope for an error of ours."""
    if not isinstance(error, IsthmusError):
        error = BackendError("The server failed on this request.")
    headers = {} if error.retry_after_s is None else {"Retry-After": str(max(1, error.retry_after_s))}
    return Response(envelope_bytes(error), error.status, headers, media_type="application/json")


async def on_validation_error(request: Request, error: Exception) -> Response:
    """A field that passed our checks and not the engine's request model: its place, without its value."""
    param = None
    if isinstance(error, RequestValidationError) and error.errors():
        names = [part for part in error.errors()[0]["loc"][1:] if isinstance(part, str)]
        param = names[0] if names else None
    return await on_error(request, InvalidRequest("The model cannot take this value.", param=param))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Routes and methods that do not exist."""
    return await on_error(request, NotFound("There is no such route.", code="unknown_route"))
