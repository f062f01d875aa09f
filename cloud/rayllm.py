"""The ingress: OpenAI routes over the model deployments. With `cloud.model_server`, all that leans on Ray Serve LLM.

Beyond its stable names, for whose sake Ray is pinned: `make_fastapi_ingress(app=…)`, `OpenAiIngress._get_response` and
its handles, the copy of a chat request that can be pickled, and the shape of the engine's error responses.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from types import NoneType
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from ray.exceptions import RayError, RayTaskError
from ray.llm._internal.serve.core.configs.openai_api_models import ErrorResponse
from ray.llm._internal.serve.core.ingress.utils import _sanitize_chat_completion_request
from ray.llm._internal.serve.core.protocol import RawRequestInfo
from ray.serve._private.http_util import session_id_from_headers
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.llm.ingress import OpenAiIngress, make_fastapi_ingress
from ray.serve.llm.openai_api_models import ChatCompletionRequest, CompletionRequest, EmbeddingRequest
from ray.util import get_node_ip_address
from ray.util.metrics import Counter
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from vllm.exceptions import VLLMClientError

from cloud.adapters.serving import store_of
from cloud.adapters.store import unknown_adapter
from cloud.awake import Awake
from cloud.control_calls import answer_beside_requests
from cloud.direct.inbox import Address, Receiver, Sent
from cloud.guard import ADMIN_PREFIX, Guard, unknown_model
from cloud.loopback import LOOPBACK, keep_replica_on_loopback
from cloud.refusals import engine_failed, grammar_refused, of_event, translated
from cloud.settings import AdapterSettings, AppArgs, LifeSettings
from cloud.spans import Traced, watched
from cloud.streams import EventStream
from shared.errors import (
    BackendError,
    CapacityError,
    Draining,
    InvalidRequest,
    IsthmusError,
    NotFound,
    NotReady,
    Overloaded,
    StreamBroken,
    TrustError,
)
from shared.openai.envelope import envelope_bytes, error_event, error_headers
from shared.tracing.build import OnSpans

_ADAPTER_LIMIT_S = 120.0
"""Every byte of an adapter is hashed and read before an engine loads it."""
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Ingress(OpenAiIngress):  # type: ignore[misc]  # Ray ships no types
    """The OpenAI routes over the model deployments; drains on request and keeps our error shape."""

    def __init__(
        self,
        *,
        life: LifeSettings,
        adapters: dict[str, AdapterSettings],
        only_loopback: bool,
        direct: bool,
        **kwargs: Any,
    ) -> None:
        if only_loopback:
            keep_replica_on_loopback()
        answer_beside_requests()
        super().__init__(**kwargs)
        own_address = LOOPBACK if only_loopback else get_node_ip_address()
        self._receiver = Receiver(own_address, life.health_check_timeout_s) if direct else None
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
        await self._require_adapter(model)
        if not adapter:
            return self._card(model)
        return await asyncio.to_thread(self._adapter_card, base, adapter)

    async def load_adapter(self, name: str) -> dict[str, Any]:
        """POST /cloud/v1/adapters/{base:adapter}/load: in every replica that runs, before somebody waits for it."""
        await self._require_adapter(name)
        return await self._in_every_replica("load_adapter", name)

    async def unload_adapter(self, name: str) -> dict[str, Any]:
        """POST /cloud/v1/adapters/{base:adapter}/unload: its place becomes free; the next request loads it again."""
        return await self._in_every_replica("unload_adapter", name)

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
        digest = store.served(name).digest
        return self._card(base) | {"id": f"{base}:{name}", "parent": base, "digest": digest}

    async def _require_adapter(self, model: str) -> None:
        """Raises NotFound for a model or an adapter that is not there, also where none can be called so."""
        base, colon, name = model.partition(":")
        if base not in self._model_cards:
            raise unknown_model()
        store = self._adapter_stores.get(base)
        known = False
        if colon and store is not None:
            with contextlib.suppress(InvalidRequest):
                known = await asyncio.to_thread(store.has, name)
        if colon and not known:
            raise unknown_adapter()

    async def _in_every_replica(self, method: str, name: str) -> dict[str, Any]:
        """Raises InvalidRequest where a replica refuses the adapter, with the reason and its figures."""
        base, colon, adapter = name.partition(":")
        if base not in self._default_serve_handles:
            raise unknown_model()
        if not colon or base not in self._adapter_stores:
            raise unknown_adapter()
        try:
            handle = self._default_serve_handles[base]
            answers = await handle.broadcast(method, adapter).results_async(timeout_s=_ADAPTER_LIMIT_S)
        except DeploymentUnavailableError:
            answers = []
        except (RayError, RayServeException, TimeoutError) as error:
            raise engine_failed() from error
        if not answers:
            raise NotReady("No replica of this model runs.", retry_after_s=self._life.cold_retry_after_s)
        for answer in answers:
            if isinstance(answer, TrustError):
                # It is the caller who named it: what is wrong with it is no failure of this server.
                raise InvalidRequest(answer.message, param=answer.param, code=answer.code)
            if answer is not None:
                raise answer
        return {"id": name, "replicas": len(answers)}

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
            stream = bool(getattr(body, "stream", False))
            items = self._items(self._source(body, request, method, stream=stream), body.model, prompt_field)
            if getattr(body, "structured_outputs", None) is not None:
                items = _of_own_grammar(items)
            items = watched(request.scope, items, body.model, stream=stream)
            events = EventStream(items, self._life.keepalive_s)
            if stream:
                await events.open()
            else:
                return Response((await anext(items)).model_dump_json(), media_type="application/json")
        return StreamingResponse(self._stream(events), media_type="text/event-stream", headers=_STREAM_HEADERS)

    def _source(self, body: Any, request: Request, method: str, *, stream: bool) -> AsyncGenerator[Any, None]:
        """What the replica sends. Whole answers come back through the call; so do streams that are not direct."""
        if self._receiver is None or not stream:
            relayed: AsyncGenerator[Any, None] = self._get_response(body=body, call_method=method, raw_request=request)
            return relayed
        return self._receiver.stream(lambda address: self._call(body, request, method, address))

    async def _call(self, body: Any, request: Request, method: str, address: Address) -> Sent:
        """Have a replica that Serve chooses send its events to `address`; queues and limits are those of any call."""
        handle = self._default_serve_handles[body.model.partition(":")[0]]
        if session_id := session_id_from_headers(request.headers):
            handle = handle.options(session_id=session_id)
        if isinstance(body, ChatCompletionRequest):
            body = _sanitize_chat_completion_request(body)
        response = handle.stream_to.remote(body, RawRequestInfo.from_starlette_request(request), method, address)
        try:
            sent: Sent = await response
            return sent
        except asyncio.CancelledError:
            response.cancel()
            raise

    async def _items(
        self, source: AsyncGenerator[Any, None], model: str, prompt_field: str
    ) -> AsyncGenerator[Any, None]:
        """What the replica sends: encoded events of a stream, or one whole response.

        Raises:
            IsthmusError: the engine refused or failed, or the replica is gone.
        """
        try:
            async with contextlib.aclosing(source) as batches:
                async for batch in batches:
                    for item in batch if isinstance(batch, list) else [batch]:
                        yield _checked(item, prompt_field)
        except BackPressureError:
            raise await self._refusal(model) from None
        except DeploymentUnavailableError:
            raise NotReady("The model is not available now.", retry_after_s=self._life.cold_retry_after_s) from None
        except (RayError, StreamBroken) as error:
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


async def _of_own_grammar(items: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """`items`, where a failure of the engine is the grammar's that the request brought. One of the replica is not."""
    try:
        async with contextlib.aclosing(items):
            async for item in items:
                yield item
    except BackendError as error:
        if error.code == engine_failed().code and isinstance(error.__cause__, (RayTaskError, NoneType)):
            raise grammar_refused() from error
        raise


def _checked(item: Any, prompt_field: str) -> Any:
    """What goes on to the client: an encoded event, or a whole answer. Raises what `item` says went wrong."""
    if isinstance(item, str):
        item = item.encode()
    if isinstance(item, bytes):
        if (refused := of_event(item, prompt_field=prompt_field)) is not None:
            raise refused
    elif isinstance(item, IsthmusError):
        raise item
    elif isinstance(item, ErrorResponse):
        details = item.error
        raise translated(details.message, details.code, getattr(details, "param", None), prompt_field=prompt_field)
    return item


_ROUTES = {
    "models": lambda app: app.get("/v1/models"),
    "model_data": lambda app: app.get("/v1/models/{model:path}"),
    "chat": lambda app: app.post("/v1/chat/completions"),
    "completions": lambda app: app.post("/v1/completions"),
    "embeddings": lambda app: app.post("/v1/embeddings"),
    "load_adapter": lambda app: app.post(ADMIN_PREFIX + "adapters/{name:path}/load"),
    "unload_adapter": lambda app: app.post(ADMIN_PREFIX + "adapters/{name:path}/unload"),
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
    answer_errors(app)
    return make_fastapi_ingress(Ingress, endpoint_map=_ROUTES, app=app)


def answer_errors(app: FastAPI) -> None:
    """Let every error of `app` leave in the OpenAI envelope."""
    app.add_exception_handler(IsthmusError, on_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(VLLMClientError, on_engine_refusal)
    app.add_exception_handler(Exception, on_error)


def span_count() -> OnSpans:
    """What counts spans by what became of them, among the metrics of Ray."""
    counter = Counter("isthmus_cloud_trace_spans", "Spans by what became of them.", tag_keys=("outcome",))
    return lambda outcome, count: counter.inc(count, {"outcome": outcome})


async def on_error(_: Request, error: Exception) -> Response:
    """The OpenAI envelope for an error of ours."""
    if not isinstance(error, IsthmusError):
        error = BackendError("The server failed on this request.")
    return Response(envelope_bytes(error), error.status, error_headers(error), media_type="application/json")


async def on_validation_error(request: Request, error: Exception) -> Response:
    """A field that passed our checks and not the engine's request model: its place, without its value."""
    param = None
    if isinstance(error, RequestValidationError) and error.errors():
        names = [part for part in error.errors()[0]["loc"][1:] if isinstance(part, str)]
        param = names[0] if names else None
    return await on_error(request, InvalidRequest("The model cannot take this value.", param=param))


async def on_engine_refusal(request: Request, error: Exception) -> Response:
    """What the request model of the engine refuses by an error of its own kind: as any other field."""
    param = getattr(error, "parameter", None)
    return await on_error(request, translated(str(error), 400, param if isinstance(param, str) else None))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Routes and methods that do not exist."""
    return await on_error(request, NotFound("There is no such route.", code="unknown_route"))
