"""The admin routes for adapters: list, register, load, unload, pin, unpin; each needs a key of scope admin.

GET  /edge/v1/adapters
PUT  /edge/v1/adapters/base:name          the GGUF file as body; ?base_digest=sha256:… states what it was made for
POST /edge/v1/adapters/base:name/ACTION   ACTION is load, unload, pin or unpin
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, BinaryIO

import orjson
from aiohttp import web

from edge.packages.adapters.adapter import ADAPTER_FILE, AdapterName
from edge.packages.staging import Incoming
from edge.service.adapters.service import Adapters
from shared.errors import InvalidRequest, NotFound, PayloadTooLarge, SettingsError, TrustError
from shared.keys import Scope

ROUTE = "/edge/v1/adapters"
_IN_MEMORY_BYTES = 1 << 20


def routes(
    adapters: Adapters, base: str, *, require: Callable[[web.Request, Scope], None], limit_bytes: int
) -> list[web.RouteDef]:
    """The routes; `require` checks a request's key."""
    surface = _Surface(adapters, base, require, limit_bytes)
    actions = {"load": adapters.load, "unload": adapters.unload, "pin": adapters.pin, "unpin": adapters.unpin}
    return [
        web.get(ROUTE, surface.list),
        web.put(ROUTE + "/{name}", surface.register),
        *(web.post(f"{ROUTE}/{{name}}/{action}", surface.acts(act)) for action, act in actions.items()),
    ]


class _Surface:
    def __init__(
        self, adapters: Adapters, base: str, require: Callable[[web.Request, Scope], None], limit_bytes: int
    ) -> None:
        self._adapters = adapters
        self._base = base
        self._require = require
        self._limit_bytes = limit_bytes

    async def list(self, request: web.Request) -> web.StreamResponse:
        self._require(request, Scope.ADMIN)
        return _json({"base": self._base, "adapters": await self._adapters.listing()})

    async def register(self, request: web.Request) -> web.StreamResponse:
        self._require(request, Scope.ADMIN)
        name = self._name(request)
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as body:
            size = 0
            async for chunk in request.content.iter_any():
                size += len(chunk)
                if size > self._limit_bytes:
                    raise PayloadTooLarge(f"The adapter is larger than the limit of {self._limit_bytes} bytes.")
                body.write(chunk)
            body.seek(0)
            content: BinaryIO | io.BufferedIOBase = body  # type: ignore[assignment]
            incoming = Incoming(ADAPTER_FILE, size, lambda: nullcontext(content))
            try:
                registered = await self._adapters.register(name, incoming, request.query.get("base_digest"))
            except TrustError as error:
                # The file is the caller's: what is wrong with it is no failure of this server.
                raise InvalidRequest(error.message, param=error.param, code=error.code) from None
            except SettingsError as error:
                raise InvalidRequest(error.message, param=error.param, code=error.code) from None
        return _json(registered, status=201)

    def acts(
        self, act: Callable[[str], Awaitable[dict[str, Any]]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            self._require(request, Scope.ADMIN)
            return _json(await act(self._name(request)))

        return handle

    def _name(self, request: web.Request) -> str:
        """The adapter's name without its base, which must be the one that is served."""
        name = AdapterName.parse(request.match_info["name"])
        if name.base != self._base:
            raise NotFound("This agent serves another base model.", param="name", code="model_not_found")
        return name.adapter


def _json(value: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json", status=status)
