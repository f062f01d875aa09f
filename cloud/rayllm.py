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
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from cloud.checkpoint import digest_of
from cloud.guard import Guard, unknown_model
from cloud.loopback import keep_replica_on_loopback
from cloud.refusals import engine_failed, of_event, translated
from cloud.settings import AppArgs
from shared.errors import (
    BackendError,
    DigestMismatch,
    Draining,
    InvalidRequest,
    IsthmusError,
    NotFound,
    NotReady,
    Overloaded,
)
from shared.openai.envelope import envelope_bytes, error_event

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


class EngineLoad:
    """A vLLM stat logger that keeps the scheduler's last figures."""

    def __init__(self) -> None:
        self.waiting = 0
        self.kv_cache_use_ratio = 0.0

    def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
        """Called by vLLM after each step."""
        if scheduler_stats is not None:
            self.waiting = scheduler_stats.num_waiting_reqs
            self.kv_cache_use_ratio = scheduler_stats.kv_cache_usage

    def log(self, *_: Any, **__: Any) -> None:
        """Nothing is written."""

    def log_engine_initialized(self) -> None:
        """Nothing is written."""

    def record_sleep_state(self, *_: Any, **__: Any) -> None:
        """Engines here do not sleep."""


class ModelServer(LLMServer):  # type: ignore[misc]  # Ray ships no types
    """One replica: an engine, a watchdog over it, and its load."""

    async def __init__(  # type: ignore[misc]  # Serve awaits constructors
        self, llm_config: LLMConfig, *, expected_digest: str | None, only_loopback: bool
    ) -> None:
        if only_loopback:
            keep_replica_on_loopback()
        self._expected_digest = expected_digest
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

    async def engine_stats(self) -> dict[str, float]:
        """Requests that run and wait, and the share of the KV cache in use.

        The scheduler reports only while it works, so after the last request ended or was aborted its figures are
        old; the count of unfinished requests never is.
        """
        unfinished = self._client.output_processor.get_num_unfinished_requests()
        waiting = min(self._load.waiting, unfinished)
        ratio = self._load.kv_cache_use_ratio if unfinished else 0.0
        return {"running": unfinished - waiting, "waiting": waiting, "kv_cache_use_ratio": min(1.0, ratio)}

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

    def __init__(self, *, retry_after_s: int, only_loopback: bool, **kwargs: Any) -> None:
        if only_loopback:
            keep_replica_on_loopback()
        super().__init__(**kwargs)
        self._retry_after_s = retry_after_s
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
        return {"object": "list", "data": [self._card(model_id) for model_id in self._model_cards]}

    async def model_data(self, model: str) -> dict[str, Any]:
        """GET /v1/models/{model}."""
        if model not in self._model_cards:
            raise unknown_model()
        return self._card(model)

    async def begin_drain(self) -> None:
        """Refuse new requests from now on; those that run go on."""
        self._draining = True

    async def open_requests(self) -> int:
        """Requests whose answer is not complete."""
        return self._open

    def _card(self, model_id: str) -> dict[str, Any]:
        facts: dict[str, Any] = self._model_cards[model_id]
        return {"id": model_id, "object": "model", "created": 0, "owned_by": "isthmus"} | facts

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
        with self._counted():
            items = self._items(self._get_response(body=body, call_method=method, raw_request=request), prompt_field)
            first = await anext(items)
            if not isinstance(first, bytes):
                return Response(first.model_dump_json(), media_type="application/json")
        return StreamingResponse(self._stream(first, items), media_type="text/event-stream", headers=_STREAM_HEADERS)

    async def _items(self, source: AsyncGenerator[Any, None], prompt_field: str) -> AsyncIterator[Any]:
        """What the replica sends: encoded events of a stream, or one whole response.

        Raises:
            IsthmusError: the engine refused or failed, or the replica is gone.
        """
        try:
            async for batch in source:
                for item in batch if isinstance(batch, list) else [batch]:
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
            raise Overloaded(
                "All replicas are busy and the queue is full.", retry_after_s=self._retry_after_s
            ) from None
        except DeploymentUnavailableError:
            raise NotReady("The model is not available now.", retry_after_s=self._retry_after_s) from None
        except RayError as error:
            raise engine_failed() from error

    async def _stream(self, first: bytes, items: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        """Events as they come; a failure in the middle is one error event, after which no `[DONE]` follows."""
        with self._counted():
            try:
                yield first
                async for event in items:
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
    )
    app.add_exception_handler(IsthmusError, on_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    return make_fastapi_ingress(Ingress, endpoint_map=_ROUTES, app=app)


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
