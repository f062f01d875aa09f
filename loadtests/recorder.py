"""The recorder: a proxy between router and cloud that counts what personal data of a load test passes it.

    router ──► recorder ──► cloud

It forwards every byte unchanged, and looks for the markers of a run in path, headers and body of each request before
it goes on. It can also play the faults of a cloud tier. Its own routes lie under `/recorder/v1`; it listens on loopback
alone, because whoever reaches them can make it lose requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import aiohttp
import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loadtests.workload.canaries import Marker, leaked_bytes
from shared.errors import InvalidRequest
from shared.http import errors

TALLY_ROUTE, WATCH_ROUTE, FAULT_ROUTE = "/recorder/v1/tally", "/recorder/v1/watch", "/recorder/v1/fault"
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length", "expect"}
)
_BODY_BYTES = 64 * 1024 * 1024
_SESSION = web.AppKey("session", aiohttp.ClientSession)
_M = TypeVar("_M", bound=BaseModel)


class Watch(BaseModel):
    """Which canaries to look for, from now on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    word: str = Field(pattern=r"^[a-z]{8,32}$")
    digits: str = Field(pattern=r"^[0-9]{8,14}$")


class CloudFault(BaseModel):
    """What the cloud seems to suffer from, for how long (seconds); it ends by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["none", "killed", "cold"]
    for_s: float = Field(default=60.0, ge=0, le=86_400)
    start_s: float = Field(default=8.0, ge=0, le=600)
    """How long a cold start takes, from the first request on."""


@dataclass(slots=True)
class Tally:
    """What passed since the last watch began."""

    requests: int = 0
    request_bytes: int = 0
    leaked_requests: int = 0
    leaked_bytes: int = 0
    by_path: dict[str, int] = field(default_factory=dict)


class Recorder:
    """The handlers over one cloud endpoint."""

    def __init__(self, to: str) -> None:
        self._to = to.rstrip("/")
        self._marker: Marker | None = None
        self._tally = Tally()
        self._fault = CloudFault(kind="none")
        self._fault_until_s = 0.0
        self._warm_at_s: float | None = None

    def application(self) -> web.Application:
        """The application."""
        app = web.Application(client_max_size=_BODY_BYTES, middlewares=[errors.middleware("recorder")])
        app.router.add_get(TALLY_ROUTE, self._show)
        app.router.add_post(WATCH_ROUTE, self._watch)
        app.router.add_post(FAULT_ROUTE, self._set_fault)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        app.cleanup_ctx.append(_session)
        return app

    async def _show(self, _: web.Request) -> web.Response:
        tally = self._tally
        body = {
            "watching": self._marker is not None,
            "requests": tally.requests,
            "request_bytes": tally.request_bytes,
            "leaked_requests": tally.leaked_requests,
            "leaked_bytes": tally.leaked_bytes,
            "by_path": tally.by_path,
        }
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    async def _watch(self, request: web.Request) -> web.Response:
        watch = _read(Watch, await request.read())
        self._marker, self._tally = Marker(watch.word, watch.digits), Tally()
        return web.Response(status=204)

    async def _set_fault(self, request: web.Request) -> web.Response:
        self._fault = _read(CloudFault, await request.read())
        self._fault_until_s = time.monotonic() + self._fault.for_s
        self._warm_at_s = None
        return web.Response(status=204)

    @property
    def _suffers(self) -> str:
        return self._fault.kind if time.monotonic() < self._fault_until_s else "none"

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self._count(request, body)
        if self._suffers == "killed":
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError
        if self._suffers == "cold" and request.method == "POST":
            await self._start_up()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        session = request.app[_SESSION]
        try:
            async with session.request(
                request.method, self._to + request.path_qs, data=body, headers=headers
            ) as answer:
                return await self._answer(request, answer)
        except aiohttp.ClientConnectorError:
            # The cloud refuses connections; for the router that is the same as this end closing.
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from None

    async def _answer(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
        if self._suffers == "cold" and request.path.endswith("/capacity") and not self._is_warm:
            return web.Response(status=answer.status, body=_as_asleep(await answer.read()), headers=kept)
        response = web.StreamResponse(status=answer.status, headers=kept)
        await response.prepare(request)
        try:
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        except aiohttp.ClientError:
            # A cut stays a cut: an end of the body would make a whole answer of a broken one.
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from None
        await response.write_eof()
        return response

    @property
    def _is_warm(self) -> bool:
        return self._warm_at_s is not None and time.monotonic() >= self._warm_at_s

    async def _start_up(self) -> None:
        """Hold a request until the cold start that the first one began is over."""
        if self._warm_at_s is None:
            self._warm_at_s = time.monotonic() + self._fault.start_s
        await asyncio.sleep(max(0.0, self._warm_at_s - time.monotonic()))

    def _count(self, request: web.Request, body: bytes) -> None:
        tally = self._tally
        tally.requests += 1
        tally.request_bytes += len(body)
        if request.method == "POST":
            tally.by_path[request.path] = tally.by_path.get(request.path, 0) + 1
        if self._marker is None:
            return
        head = "\n".join((request.path_qs, *(f"{name}: {value}" for name, value in request.headers.items())))
        leaked = leaked_bytes(body, self._marker) + leaked_bytes(head.encode("utf-8", "replace"), self._marker)
        tally.leaked_bytes += leaked
        tally.leaked_requests += leaked > 0


async def _session(app: web.Application) -> AsyncIterator[None]:
    timeout = aiohttp.ClientTimeout(total=None, connect=10)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as http:
        app[_SESSION] = http
        yield


def _read(model: type[_M], raw: bytes) -> _M:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field_name = ".".join(str(part) for part in first["loc"]) or None
        raise InvalidRequest(f"Not understood: {first['type']}.", param=field_name) from None


def _as_asleep(body: bytes) -> bytes:
    """The capacity answer of a cloud that is scaled to zero."""
    try:
        value: Any = orjson.loads(body)
        for model in value["models"]:
            model.update(state="scaled_to_zero", replicas_ready=0, running=0, waiting=0)
        return orjson.dumps(value)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return body
