"""The router's routes and the background work that lives as long as they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from router.http.devices import DeviceDesk
from router.http.explain import Explain
from router.http.feedback import Feedback
from router.http.fleet import Fleet
from router.http.inference import Inference
from router.http.models import Models
from router.http.openapi import ROUTE as OPENAPI_ROUTE
from router.http.openapi import OpenApi
from router.http.probes import Metrics, Probes
from shared.enrolment import DEVICES_ROUTE, INVITATIONS_ROUTE
from shared.http.direct import DIRECT
from shared.http.errors import middleware
from shared.openai.facts import Endpoint


@dataclass(frozen=True, slots=True)
class Handlers:
    """One handler a group of routes."""

    inference: Inference
    models: Models
    fleet: Fleet
    devices: DeviceDesk
    explain: Explain
    feedback: Feedback
    probes: Probes
    metrics: Metrics
    openapi: OpenApi


def build(
    handlers: Handlers,
    *,
    before: Sequence[Callable[[], Awaitable[None]]],
    loops: Sequence[Callable[[], Coroutine[Any, Any, None]]],
    after: Sequence[Callable[[], Awaitable[None]]],
    more: Sequence[web.RouteDef] = (),
) -> web.Application:
    """The application, with `more` routes.

    `before` runs ahead of the first request, `loops` beside the requests, `after` at the end.
    """
    app = web.Application(middlewares=[middleware("router")])
    for endpoint in Endpoint:
        app.router.add_post(endpoint, handlers.inference.handle)
    app[DIRECT] = {endpoint.value: handlers.inference.handle for endpoint in Endpoint}
    app.router.add_get("/v1/models", handlers.models.handle)
    app.router.add_post("/fleet/v1/heartbeats", handlers.fleet.take_heartbeat)
    app.router.add_get("/fleet/v1/backends", handlers.fleet.show)
    app.router.add_post(INVITATIONS_ROUTE, handlers.devices.invite)
    app.router.add_post(DEVICES_ROUTE, handlers.devices.join)
    app.router.add_get(DEVICES_ROUTE, handlers.devices.show)
    app.router.add_delete(DEVICES_ROUTE + "/{device_id}", handlers.devices.revoke)
    app.router.add_post("/router/v1/explain", handlers.explain.handle)
    app.router.add_post("/router/v1/feedback", handlers.feedback.handle)
    app.router.add_get("/healthz", handlers.probes.live)
    app.router.add_get("/readyz", handlers.probes.ready)
    app.router.add_get("/metrics", handlers.metrics.handle)
    app.router.add_get(OPENAPI_ROUTE, handlers.openapi.handle)
    app.router.add_routes(more)

    async def life(_: web.Application) -> AsyncIterator[None]:
        for step in before:
            await step()
        tasks = [asyncio.create_task(loop()) for loop in loops]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for step in after:
            await step()

    app.cleanup_ctx.append(life)
    return app
