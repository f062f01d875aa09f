"""The first key beside a running stack of one home: its agent reports on, its commands go on, strangers are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from typer.testing import CliRunner

from edge.enrolment import reporter_of
from edge.service.reporting import Outcome
from edge.settings import EdgeSettings
from router.chat_command import app as chat
from router.cli import app as router_app
from router.console import RouterClient
from router.fleet_commands import app as fleet_app
from router.reach import reach
from router.settings import RouterSettings
from shared.clock import SystemClock
from shared.errors import BackendUnreachable, InvalidRequest, IsthmusError, SettingsError
from shared.fleet import BackendState, Heartbeat, ServedModel
from shared.settings import load
from shared.testing.answers import MODEL
from shared.testing.certificates import Authority
from shared.testing.program import Program, isthmus
from shared.testing.upstream import Upstream


async def run(app: Any, *arguments: str) -> Any:
    result = await asyncio.to_thread(CliRunner().invoke, app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result


class Home:
    """A router of this home, whose settings the commands of this process read too."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.sequence = 0

    def serve(self, **router: Any) -> Any:
        return isthmus("router", "serve", home=self.folder, settings={"router": {"port": self.port, **router}})

    async def up(self, program: Program, scheme: str = "http") -> None:
        await asyncio.to_thread(program.wait_answer, f"{scheme}://127.0.0.1:{self.port}/readyz", 60)

    def beat(self, upstream: Upstream) -> Heartbeat:
        self.sequence += 1
        return Heartbeat(
            backend_id="own-edge", instance="instance-a", sequence=self.sequence, url=upstream.url,
            state=BackendState.READY, models=(ServedModel(model_id=MODEL, context_tokens=4096),),
        )  # fmt: skip


@pytest.fixture
async def home(tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Home]:
    found = Home(tmp_path, free_port())
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    monkeypatch.setenv("ISTHMUS__ROUTER__PORT", str(found.port))
    monkeypatch.delenv("ISTHMUS_API_KEY", raising=False)
    yield found


async def test_the_first_key_beside_a_running_stack_locks_out_strangers_alone(home: Home, edge: Upstream) -> None:
    settings = load(EdgeSettings, "edge", router={"url": home.url}, device_dir=home.folder / "device")
    reporter = reporter_of(settings, None, SystemClock())
    assert reporter is not None
    try:
        with home.serve() as program:
            await home.up(program)
            assert await reporter.report(home.beat(edge)) is Outcome.ACCEPTED
            made = await run(router_app, "keys", "create", "app")
            key = made.stdout.strip().splitlines()[0]
            async with aiohttp.ClientSession() as stranger, asyncio.timeout(20):
                body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
                status = 0
                while status != 401:  # routers follow the register within a second
                    async with stranger.post(f"{home.url}/v1/chat/completions", json=body) as response:
                        status = response.status
                bearer = {"Authorization": f"Bearer {key}"}
                async with stranger.post(f"{home.url}/v1/chat/completions", json=body, headers=bearer) as response:
                    assert response.status == 200
            await reporter.report(home.beat(edge))
            assert await reporter.report(home.beat(edge)) is Outcome.ACCEPTED, "the agent of this home reports on"
            assert "own-edge" in (await run(router_app, "fleet")).output
            assert "own-edge" in (await run(fleet_app, "status", "--json")).output
            assert "public" in (await run(router_app, "explain", "hello")).output
            assert (await run(router_app, "devices", "invite")).exit_code == 0
            assert (await run(chat, "hello")).exit_code == 0
            with pytest.raises(IsthmusError, match="401"):
                await asyncio.to_thread(RouterClient(home.url, None).fleet)
        with home.serve() as program:  # another start, other keys: the agent finds them
            await home.up(program)
            await reporter.report(home.beat(edge))
            assert await reporter.report(home.beat(edge)) is Outcome.ACCEPTED
        assert not any((home.folder / "local").iterdir()), "they end with their router"
    finally:
        await reporter.close()


async def test_commands_show_a_certificate_where_the_router_wants_one(
    home: Home, edge: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(home.folder)
    server, own = authority.pair("server"), authority.pair("own")
    tls = {"cert_file": str(server.cert), "key_file": str(server.key), "client_ca_file": str(authority.ca)}
    with home.serve(tls=tls, edges=[{"id": "edge-1", "url": edge.url}]) as program:
        monkeypatch.setenv("ISTHMUS__ROUTER__TLS", orjson.dumps(tls).decode())
        async with asyncio.timeout(60):
            while '"listening"' not in program.log.read_text():
                await asyncio.sleep(0.05)

        def fleet() -> dict[str, Any]:
            return RouterClient(*reach(None, None, None)).fleet()

        with pytest.raises(BackendUnreachable, match=r"router\.client\.ca_file"):
            await asyncio.to_thread(fleet)
        monkeypatch.setenv("ISTHMUS__ROUTER__CLIENT__CA_FILE", str(authority.ca))
        with pytest.raises(BackendUnreachable):
            await asyncio.to_thread(fleet)
        monkeypatch.setenv("ISTHMUS__ROUTER__CLIENT__CERT_FILE", str(own.cert))
        with pytest.raises(SettingsError):
            await asyncio.to_thread(fleet)
        monkeypatch.setenv("ISTHMUS__ROUTER__CLIENT__KEY_FILE", str(own.key))
        assert [each["backend_id"] for each in (await asyncio.to_thread(fleet))["backends"]] == ["edge-1"]


def test_a_key_of_the_settings_goes_to_the_router_of_the_settings_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home.folder / "key").write_text("isk-mine\n")
    monkeypatch.setenv("ISTHMUS__ROUTER__CLIENT__API_KEY_FILE", str(home.folder / "key"))
    assert reach(None, None, None).key == "isk-mine"
    assert reach(f"{home.url}/", None, None).key == "isk-mine"
    assert reach("http://127.0.0.1:1", None, None).key is None
    assert reach("http://elsewhere.example", None, None).key is None
    assert reach("http://elsewhere.example", "isk-given", None).key == "isk-given"


def test_names_of_these_keys_are_not_given_to_others(home: Home) -> None:
    result = CliRunner().invoke(router_app, ["keys", "create", "local:commands"])
    assert isinstance(result.exception, InvalidRequest)
    with pytest.raises(SettingsError, match="local:"):
        load(RouterSettings, "router", keys=[{"name": "local:agent", "sha256": "0" * 64}])
