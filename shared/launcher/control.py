"""The control socket of a running `isthmus up`: state, killing or starting one tier, the simulated
heat's beginning, the end of the run.

A Unix socket in the run folder, for the same user alone; nothing of it is reachable over the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from shared.errors import NotFound
from shared.http import errors
from shared.launcher.runner import TierRunner
from shared.launcher.settings import TierName


class Control:
    """Serves the socket while the block runs."""

    def __init__(
        self,
        path: Path,
        runners: Mapping[TierName, TierRunner],
        facts: Callable[[], dict[str, Any]],
        *,
        restart_heat: Callable[[], bool],
        stop: Callable[[], None],
    ) -> None:
        self._path = path
        self._runners = runners
        self._facts = facts
        self._restart_heat = restart_heat
        self._end = stop
        app = web.Application(middlewares=[errors.middleware("up")])
        app.router.add_get("/state", self._state)
        app.router.add_post("/tiers/{name}/kill", self._kill)
        app.router.add_post("/tiers/{name}/start", self._start)
        app.router.add_post("/heat/restart", self._heat)
        app.router.add_post("/stop", self._stop)
        self._web = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> Control:
        self._path.unlink(missing_ok=True)
        await self._web.setup()
        await web.UnixSite(self._web, str(self._path)).start()
        self._path.chmod(0o600)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._web.cleanup()
        self._path.unlink(missing_ok=True)

    def _runner(self, request: web.Request) -> TierRunner:
        for name, runner in self._runners.items():
            if name == request.match_info["name"]:
                return runner
        raise NotFound("This run has no such tier.", param="name")

    async def _state(self, _: web.Request) -> web.Response:
        tiers = {
            name: {"state": each.state, "pid": each.pid, "url": each.url, "restarts": each.restarts}
            for name, each in self._runners.items()
        }
        return web.Response(body=orjson.dumps({**self._facts(), "tiers": tiers}), content_type="application/json")

    async def _kill(self, request: web.Request) -> web.Response:
        await self._runner(request).kill()
        return web.Response(status=204)

    async def _start(self, request: web.Request) -> web.Response:
        self._runner(request).release()
        return web.Response(status=204)

    async def _stop(self, _: web.Request) -> web.Response:
        self._end()
        return web.Response(status=202)

    async def _heat(self, _: web.Request) -> web.Response:
        if not self._restart_heat():
            raise NotFound("This run simulates no heat. Start it with isthmus up --heat ramp.")
        return web.Response(status=204)
