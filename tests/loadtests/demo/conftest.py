"""A stack that behaves as policy says, small enough to be made to misbehave: router surface and control socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from shared.testing import answers

SENSOR = "class/thermal/thermal_zone0/temp"


@dataclass
class ScriptedStack:
    """What `isthmus up` with a router, an edge agent and (if `tiers` says so) a cloud tier looks like from outside."""

    folder: Path
    tiers: tuple[str, ...] = ("edge", "cloud")
    leaks: bool = False
    """Personal requests that the edge cannot serve go to the cloud."""
    stuck: bool = False
    """A killed tier stays down."""
    killed: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    temperatures: list[int] = field(default_factory=list)
    url: str = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/fleet/v1/backends", self._backends)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/state", self._state)
        app.router.add_post("/tiers/{name}/{act}", self._act)
        return app

    @property
    def sensors(self) -> Path:
        return self.folder / "sensors"

    def _level(self) -> str:
        source = self.sensors / SENSOR
        if not source.exists():
            return "unknown"
        self.temperatures.append(int(source.read_text()))
        return "critical" if self.temperatures[-1] >= 95_000 else "nominal"

    def _usable(self, tier: str) -> bool:
        return tier in self.tiers and tier not in self.killed and not (tier == "edge" and self._level() == "critical")

    async def _backends(self, _: web.Request) -> web.Response:
        zones = {"edge": "device", "cloud": "cloud"}
        backends = [
            {
                "backend_id": tier,
                "zone": zones[tier],
                "state": "failed" if tier in self.killed else "ready",
                "level": self._level() if tier == "edge" else "unknown",
                "breaker": "closed",
                "age_ms": 100 if tier == "edge" else None,
            }
            for tier in self.tiers
        ]
        return web.json_response({"backends": backends})

    async def _state(self, _: web.Request) -> web.Response:
        tiers = {tier: {"state": "ready"} for tier in (*self.tiers, "router")}
        body = {"endpoint": f"{self.url}/v1", "model": answers.MODEL, "sensors": str(self.sensors), "tiers": tiers}
        return web.json_response(body)

    async def _act(self, request: web.Request) -> web.Response:
        name, act = request.match_info["name"], request.match_info["act"]
        self.calls.append(f"{act} {name}")
        if act == "kill":
            self.killed.add(name)
        elif not self.stuck:
            self.killed.discard(name)
        return web.Response(status=204)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        personal = "4111" in body["messages"][0]["content"]
        tier, reason = self._decide(personal, request.headers.get("x-isthmus-route", "auto"))
        headers = {"x-isthmus-class": "personal" if personal else "public", "x-isthmus-reason": reason}
        if tier is None:
            return web.json_response({"error": {"code": reason}}, status=503, headers=headers)
        answer = answers.stream("Par", "is", ".")
        response = web.StreamResponse(headers={**answers.EVENT_STREAM, **headers, "x-isthmus-tier": tier})
        await response.prepare(request)
        for write in answer.writes:
            await response.write(write.data)
        return response

    def _decide(self, personal: bool, route: str) -> tuple[str | None, str]:
        if personal and not self.leaks:
            if route == "cloud" or not self._usable("edge"):
                left = route == "cloud" or "cloud" in self.tiers
                return None, "privacy_unavailable" if left else "no_capacity"
            return "edge", "privacy_requires_edge"
        if self._usable("edge"):
            return "edge", "privacy_requires_edge" if personal else "preferred_tier"
        return ("cloud", "edge_unavailable") if self._usable("cloud") else (None, "no_capacity")


@pytest.fixture
async def scripted_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedStack]:
    """A scripted stack on a free port, found through its control socket in a home of its own."""
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    stack = ScriptedStack(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    runner = web.AppRunner(stack.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(run / "up.sock")).start()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stack.url = f"http://127.0.0.1:{runner.addresses[-1][1]}"
    yield stack
    await runner.cleanup()
