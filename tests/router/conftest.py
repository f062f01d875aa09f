"""A whole router on a loopback port, in front of scripted backends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from router.app import Router, build_router
from router.audit.files import tail
from router.privacy.scanner import Scanner
from router.settings import RouterSettings
from shared.clock import SystemClock
from shared.fleet import BackendState, Heartbeat, ServedModel, ThermalLevel
from shared.http.server import Runner
from shared.testing.answers import MODEL
from shared.testing.toxics import ToxicProxy
from shared.testing.upstream import Upstream

PUBLIC_TEXT = "Which city is the capital of France?"
PERSONAL_TEXT = "My card is 4111 1111 1111 1111, is it valid?"


class RunningRouter:
    """One router process in this event loop, spoken to over real sockets."""

    def __init__(self, router: Router, url: str, session: aiohttp.ClientSession, audit_dir: Path) -> None:
        self.router = router
        self.url = url
        self.session = session
        self.audit_dir = audit_dir
        self._sequence = 0

    async def report(self, upstream: Upstream | ToxicProxy | str, backend_id: str = "edge-1", **fields: Any) -> int:
        """Send a heartbeat as an edge agent would; the status."""
        self._sequence += 1
        values: dict[str, Any] = {
            "backend_id": backend_id,
            "instance": f"instance-of-{backend_id}",
            "sequence": self._sequence,
            "url": upstream if isinstance(upstream, str) else upstream.url,
            "state": BackendState.READY,
            "level": ThermalLevel.NOMINAL,
            "models": (ServedModel(model_id=MODEL, context_tokens=2048),),
            **fields,
        }
        beat = Heartbeat(**values)
        async with self.session.post(
            f"{self.url}/fleet/v1/heartbeats",
            data=beat.model_dump_json(),
            headers={"Content-Type": "application/json"},
        ) as answer:
            return answer.status

    def ask(self, text: str = PUBLIC_TEXT, *, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        """A chat request as an aiohttp context manager."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
        return self.send(orjson.dumps(body), headers=headers)

    def send(self, raw: bytes, *, headers: dict[str, str] | None = None, path: str = "/v1/chat/completions") -> Any:
        return self.session.post(
            self.url + path, data=raw, headers={"Content-Type": "application/json", **(headers or {})}
        )

    async def records(self, count: int) -> list[dict[str, Any]]:
        """All records of requests, once there are `count`."""
        await eventually(lambda: len(tail(self.audit_dir, 10_000, "request")) >= count)
        return tail(self.audit_dir, 10_000, "request")

    def in_flight(self) -> int:
        return sum(backend.in_flight for backend in self.router.directory.snapshot().backends)

    def metric(self, name: str, **labels: str) -> float:
        return self.router.registry.get_sample_value(name, labels) or 0.0


async def eventually(condition: Callable[[], bool], *, deadline_s: float = 10.0) -> None:
    """Return once `condition` holds; fail after `deadline_s`."""
    until = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > until:
            raise AssertionError("the condition did not come about")
        await asyncio.sleep(0.01)


StartRouter = Callable[..., Awaitable[RunningRouter]]


@pytest.fixture(scope="session")
def scanner() -> Scanner:
    """The real scanner, compiled once: that takes about a second."""
    return Scanner()


@pytest.fixture
async def start_router(tmp_path: Path, scanner: Scanner) -> AsyncIterator[StartRouter]:
    """Start routers with the given settings; all of them end with the test."""
    runners: list[web.AppRunner] = []
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def start(**settings: Any) -> RunningRouter:
        audit_dir = tmp_path / f"audit-{len(runners)}"
        chosen = settings.pop("scanner", scanner)
        values = {"port": 0, "audit": {"dir": audit_dir, "key_file": tmp_path / "audit.key"}, **settings}
        router = await build_router(RouterSettings(**values), SystemClock(), scanner=chosen)
        runner = Runner(
            router.application,
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=0.5,
            auto_decompress=False,
        )
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        return RunningRouter(router, f"http://127.0.0.1:{port}", session, audit_dir)

    yield start
    await session.close()
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def edge() -> AsyncIterator[Upstream]:
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def cloud() -> AsyncIterator[Upstream]:
    async with Upstream() as upstream:
        yield upstream
