"""The agent's HTTP surface: routes, who may call them, and the answers that need no engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry

from edge.runtime.port import Engine, EngineState, EngineStatus
from edge.service import openapi
from edge.service.adapters import surface as adapter_surface
from edge.service.adapters.service import Adapters
from edge.service.counting import ROUTE as TOKENIZE_ROUTE
from edge.service.counting import Counting
from edge.service.dialect import OpenAI
from edge.service.embedding import Embeddings
from edge.service.generation import Generation
from edge.service.memory_watch import MemoryWatch
from edge.service.ollama import errors as ollama_errors
from edge.service.ollama import origins
from edge.service.ollama import surface as ollama_surface
from edge.service.ollama.dialect import CHAT, GENERATE
from edge.service.relayed import RelayedMetrics
from edge.service.served import Served
from edge.service.thermal.watch import ThermalWatch
from shared.clock import Clock
from shared.errors import CapacityError, Draining, IsthmusError, NotFound, NotReady
from shared.http import errors
from shared.http.errors import Handler
from shared.http.hosts import check_near
from shared.http.lifecycle import Lifecycle
from shared.keys import ApiKey, Scope, authenticate, bearers_in, require
from shared.openai.facts import Endpoint
from shared.telemetry import CONTENT_TYPE, exposition

OLLAMA_ROUTES = (CHAT, GENERATE)
"""Routes that generate beside OpenAI's."""
_OPEN_ROUTES = frozenset({"/healthz", "/readyz"})
_KEY = web.RequestKey("key", ApiKey)


class ThermalCritical(CapacityError):
    """The device is too hot for new work; what runs goes on."""

    default_code = "thermal_critical"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the surface shows."""

    engine: Engine
    served: Served
    generation: Generation
    embeddings: Embeddings
    counting: Counting
    adapters: Adapters
    model: str
    thermal: ThermalWatch
    memory: MemoryWatch
    lifecycle: Lifecycle
    clock: Clock
    registry: CollectorRegistry
    relayed: RelayedMetrics
    status: Callable[[], dict[str, Any]]
    retry_after_hot_s: int
    adapter_limit_bytes: int
    body_limit_bytes: int


def build(parts: Parts, *, keys: Sequence[ApiKey]) -> web.Application:
    """The application; with no `keys` every route is open, which settings allow on loopback only."""
    surface = _Surface(parts)
    told = errors.middleware("edge", ollama_errors.shape)
    app = web.Application(middlewares=[_closing(parts.lifecycle), told, origins.middleware(), _authentication(keys)])
    app.on_response_prepare.append(origins.allow)
    app.add_routes(
        [
            web.get("/healthz", surface.live, allow_head=True),
            web.get("/readyz", surface.ready, allow_head=True),
            web.get("/metrics", surface.metrics),
            web.get(openapi.STATUS_ROUTE, surface.status),
            web.get(openapi.ROUTE, surface.openapi),
            web.get("/v1/models", surface.models),
            web.get("/v1/models/{model:.+}", surface.model),
            web.post(Endpoint.CHAT.value, surface.generate(Endpoint.CHAT)),
            web.post(Endpoint.COMPLETIONS.value, surface.generate(Endpoint.COMPLETIONS)),
            web.post(Endpoint.EMBEDDINGS.value, surface.embeddings),
            web.post(TOKENIZE_ROUTE, surface.tokenize),
            *adapter_surface.routes(
                parts.adapters,
                parts.model,
                require=lambda request, scope: require(request.get(_KEY), scope),
                limit_bytes=parts.adapter_limit_bytes,
            ),
            *ollama_surface.routes(_for_ollama(parts)),
        ]
    )
    return app


def readiness(parts: Parts) -> IsthmusError | None:
    """Why the agent takes no work now; None when it does."""
    status = parts.engine.status
    if parts.lifecycle.draining:
        return Draining("This process is shutting down.")
    if status.state is not EngineState.READY or parts.served.facts is None:
        return NotReady(f"The engine is {status.state}.", retry_after_s=status.retry_after_s)
    if not parts.thermal.measures.admits:
        return thermal_critical(parts.retry_after_hot_s)
    if not parts.memory.admits:
        return parts.memory.critical()
    return None


def thermal_critical(retry_after_s: int) -> ThermalCritical:
    """The refusal of a device whose heat or battery allows no more."""
    message = "The device is too hot, or its battery too low, to take new work."
    return ThermalCritical(message, retry_after_s=retry_after_s)


class _Surface:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def live(self, _: web.Request) -> web.StreamResponse:
        return _json({"status": "live"})

    async def ready(self, _: web.Request) -> web.StreamResponse:
        reason = readiness(self._parts)
        if reason is None:
            return _json({"status": "ready"})
        response = errors.error_response(reason)
        details = {"status": "not_ready", "reason": reason.code, "message": reason.message}
        response.body = orjson.dumps(details | _cause(self._parts.engine.status))
        return response

    async def metrics(self, _: web.Request) -> web.StreamResponse:
        body = exposition(self._parts.registry) + await self._parts.relayed.text()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, _: web.Request) -> web.StreamResponse:
        return _json(openapi.document())

    async def status(self, _: web.Request) -> web.StreamResponse:
        return _json(self._parts.status())

    async def models(self, request: web.Request) -> web.StreamResponse:
        require(request.get(_KEY), Scope.INFERENCE)
        return _json({"object": "list", "data": await self._models()})

    async def model(self, request: web.Request) -> web.StreamResponse:
        require(request.get(_KEY), Scope.INFERENCE)
        wanted = request.match_info["model"]
        found = next((model for model in await self._models() if model["id"] == wanted), None)
        if found is None:
            raise NotFound("This backend does not serve the model asked for.", param="model", code="model_not_found")
        return _json(found)

    def generate(self, endpoint: Endpoint) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            require(request.get(_KEY), Scope.INFERENCE)
            key = request.get(_KEY)
            return await self._parts.generation.serve(request, OpenAI(endpoint), key.name if key is not None else None)

        return handle

    async def tokenize(self, request: web.Request) -> web.StreamResponse:
        require(request.get(_KEY), Scope.INFERENCE)
        return await self._parts.counting.serve(request)

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        require(request.get(_KEY), Scope.INFERENCE)
        key = request.get(_KEY)
        return await self._parts.embeddings.serve(request, key.name if key is not None else None)

    async def _models(self) -> list[dict[str, Any]]:
        facts = self._parts.served.facts
        if facts is None:
            return []
        # `created` is required by OpenAI's shape; a package has no such date.
        entry = {"id": facts.model_id, "object": "model", "created": 0, "owned_by": "isthmus"}
        entry |= {"max_model_len": facts.context_tokens, "digest": facts.digest, "features": sorted(facts.features)}
        return [entry, *(_adapter_entry(entry, adapter) for adapter in await self._parts.adapters.listing())]


def _adapter_entry(base: dict[str, Any], adapter: dict[str, Any]) -> dict[str, Any]:
    """An adapter as a model of its own; `parent` is OpenAI's word for what a fine-tuned model is made of."""
    shown = {name: adapter[name] for name in ("digest", "loaded")}
    return base | {"id": adapter["name"], "parent": base["id"]} | shown


def _for_ollama(parts: Parts) -> ollama_surface.Parts:
    def checked(request: web.Request, scope: Scope) -> ApiKey | None:
        key = request.get(_KEY)
        require(key, scope)
        return key

    return ollama_surface.Parts(
        engine=parts.engine,
        served=parts.served,
        generation=parts.generation,
        embeddings=parts.embeddings,
        adapters=parts.adapters,
        clock=parts.clock,
        body_limit_bytes=parts.body_limit_bytes,
        require=checked,
    )


def _authentication(keys: Sequence[ApiKey]) -> Middleware:
    """Middleware that asks for a key, or else for a name of this machine, before a byte of the body is read."""

    @web.middleware
    async def handle(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in _OPEN_ROUTES:
            return await handler(request)
        if keys:
            bearers = bearers_in(request.path, lambda name: request.headers.getall(name, []))
            request[_KEY] = authenticate(bearers, keys)
        else:
            check_near(request.headers)
        return await handler(request)

    return handle


def _closing(lifecycle: Lifecycle) -> Middleware:
    """Middleware that ends connections while the process drains: an open one would bring its next request here."""

    @web.middleware
    async def handle(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if lifecycle.draining and not response.prepared:
            response.force_close()
        return response

    return handle


def _cause(status: EngineStatus) -> dict[str, Any]:
    return {"engine": status.state, "cause": status.reason, "restarts": status.restarts}


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
