"""The capacity application: `GET /ops/capacity` says what each model can take, without waking one that sleeps, and
`GET /ops/metrics` passes vLLM's own metrics on.

It is an application beside the OpenAI one, so it answers while models load, fail or drain.
"""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from ray import serve
from ray.exceptions import RayError
from ray.serve import Application
from ray.serve.exceptions import DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response

from cloud.adapters.serving import store_of
from cloud.availability import DeploymentView, ReplicaLoad, ServeView, capacity_of
from cloud.control_calls import answer_beside_requests, answers_in_time, count_no_calls_as_load
from cloud.engine_metrics import merged
from cloud.loopback import keep_replica_on_loopback
from cloud.options import INGRESS_NAME, ROUTING_CPUS, deployment_name
from cloud.render import APP_NAME
from cloud.settings import OpsArgs, OpsModel
from shared.clock import Clock, SystemClock
from shared.errors import NotFound
from shared.fleet import CloudCapacity
from shared.openai.envelope import envelope_bytes

_ANSWER_TIMEOUT_S = 1.0
_FRESH_MS = 200
"""Answers are shared for this long, so that many routers cost the controller no more than one."""


class Ops:
    """Reads Serve's status and the engines' load, at most once each `_FRESH_MS`."""

    def __init__(self, args: OpsArgs, clock: Clock | None = None) -> None:
        if args.only_loopback:
            keep_replica_on_loopback()
        answer_beside_requests()
        count_no_calls_as_load()
        self._models = args.models
        self._clock = clock or SystemClock()
        self._lock = asyncio.Lock()
        self._handles: dict[str, DeploymentHandle] = {}
        self._body = b""
        self._read_ms: int | None = None
        self._draining = False
        self._stores = {m.model_id: store_of(m.adapters, m.model_id) for m in args.models if m.adapters is not None}

    async def __call__(self, request: Request) -> Response:
        """GET /capacity and /metrics below the route prefix."""
        if request.method == "GET" and request.url.path.endswith("/capacity"):
            return Response(await self._fresh(), media_type="application/json")
        if request.method == "GET" and request.url.path.endswith("/metrics"):
            return Response(await self._metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})
        body = envelope_bytes(NotFound("There is no such route.", code="unknown_route"))
        return Response(body, 404, media_type="application/json")

    async def begin_drain(self) -> None:
        """Report every model as draining from now on."""
        self._draining = True
        self._read_ms = None

    async def _fresh(self) -> bytes:
        async with self._lock:
            now_ms = self._clock.now_ms()
            if self._read_ms is None or now_ms - self._read_ms >= _FRESH_MS:
                parts = [capacity.model_dump_json() for capacity in await self._read()]
                self._body = f'{{"models":[{",".join(parts)}]}}'.encode()
                self._read_ms = self._clock.now_ms()
            return self._body

    async def _read(self) -> list[CloudCapacity]:
        status = await asyncio.to_thread(serve.status)
        app = status.applications.get(APP_NAME)
        return list(
            await asyncio.gather(
                *(
                    self._capacity(
                        model,
                        ServeView(
                            ingress=_view(app, INGRESS_NAME),
                            model=_view(app, deployment_name(model.model_id)),
                            app_status=app.status.value if app else "NOT_STARTED",
                            draining=self._draining,
                        ),
                    )
                    for model in self._models
                )
            )
        )

    async def _capacity(self, model: OpsModel, view: ServeView) -> CloudCapacity:
        loads = await self._loads(model) if view.model and view.model.running else None
        store = self._stores.get(model.model_id)
        adapters = await asyncio.to_thread(store.digests) if store else {}
        return capacity_of(model, view, loads, adapters)

    async def _metrics(self) -> str:
        """vLLM's own metrics of every replica that runs and answers in time; no sleeping model is woken."""
        app = (await asyncio.to_thread(serve.status)).applications.get(APP_NAME)
        views = [(model, _view(app, deployment_name(model.model_id))) for model in self._models]
        awake = [model for model, view in views if view is not None and view.running]
        answers = await asyncio.gather(*(self._asked(model, "engine_metrics") for model in awake))
        return merged({name: text for each in answers for name, text in each})

    async def _loads(self, model: OpsModel) -> list[ReplicaLoad]:
        """The load of each replica that answers in time. Only asked where Serve lists running replicas."""
        answers = await self._asked(model, "engine_stats")
        return [ReplicaLoad(**answer) for answer in answers if isinstance(answer, dict)]

    async def _asked(self, model: OpsModel, method: str) -> list[Any]:
        """What each replica of a model says to `method`, of those that answer in time."""
        handle = self._handles.get(model.model_id)
        if handle is None:
            handle = serve.get_deployment_handle(deployment_name(model.model_id), APP_NAME)
            self._handles[model.model_id] = handle
        try:
            return await answers_in_time(handle, method, _ANSWER_TIMEOUT_S)
        except (DeploymentUnavailableError, RayServeException, RayError, TimeoutError):
            return []


def _view(app: Any, name: str) -> DeploymentView | None:
    """A deployment of an application's status; None where there is none."""
    found = app.deployments.get(name) if app else None
    if found is None:
        return None
    counts = {str(getattr(state, "value", state)): n for state, n in found.replica_states.items()}
    return DeploymentView(str(getattr(found.status, "value", found.status)), counts)


def build(args: dict[str, Any]) -> Application:
    """The application for `args` (see `OpsArgs`)."""
    parsed = OpsArgs.model_validate(args)
    deployment = serve.deployment(
        Ops,
        name="ops",
        num_replicas=1,
        max_ongoing_requests=64,
        max_queued_requests=64,
        health_check_period_s=2,
        ray_actor_options={"num_cpus": ROUTING_CPUS},
    )
    return deployment.bind(parsed)
