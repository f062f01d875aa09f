"""A device joins a real router by command line, its agent's reports are taken, and are refused once it is revoked."""

from __future__ import annotations

import asyncio
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from shared.testing.program import child_environment, command, isthmus
from tests.edge.service.fakes import FakeEngine, engine_server
from tests.edge.service.harness import running_agent, until


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def router_url(home: Path, free_port: Callable[[], int]) -> Iterator[str]:
    port = free_port()
    settings = {"router": {"port": port, "devices": {"required": True}}}
    with isthmus("router", "serve", home=home, settings=settings, name="router") as program:
        url = f"http://127.0.0.1:{port}"
        program.wait_answer(f"{url}/readyz", 60)
        yield url


def _run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(), *arguments], env=child_environment(home), capture_output=True, text=True, timeout=60, check=False
    )


async def _ran(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(_run, home, *arguments)


async def test_join_report_revoke(home: Path, router_url: str, tmp_path: Path) -> None:
    at = ("--url", router_url)
    invited = await _ran(home, "router", "devices", "invite", *at, "--json")
    token = orjson.loads(invited.stdout)["token"]
    joined = await _ran(home, "edge", "join", router_url, "--token", token, "--json")
    assert joined.returncode == 0, joined.stderr
    facts = orjson.loads(joined.stdout)
    assert stat.S_IMODE((home / "device/device.key").stat().st_mode) == 0o600
    again = await _ran(home, "edge", "join", router_url, "--token", token)
    assert again.returncode == 1
    assert "token" in again.stderr and token not in again.stderr

    device_dir = str(home / "device")
    async with engine_server(tmp_path) as server, running_agent(FakeEngine(server), device_dir=device_dir) as running:
        sender = running.agent.heartbeat
        assert sender is not None, "the router that was joined is the one that is reported to"
        await until(lambda: sender.outcome == "accepted")
        listed = orjson.loads((await _ran(home, "router", "devices", "list", *at, "--json")).stdout)["devices"]
        assert [(d["device_id"], d["backend_id"], d["state"]) for d in listed] == [
            (facts["device_id"], facts["backend_id"], "active")
        ]
        fleet = orjson.loads((await _ran(home, "router", "fleet", *at, "--json")).stdout)["backends"]
        assert [b["backend_id"] for b in fleet] == [facts["backend_id"]]
        assert (await _ran(home, "router", "devices", "revoke", facts["device_id"], *at)).returncode == 0
        await until(lambda: sender.outcome == "unauthorised")
        assert orjson.loads((await _ran(home, "router", "fleet", *at, "--json")).stdout)["backends"] == []
        async with running.chat() as response:
            assert response.status == 200  # a router that refuses disturbs nobody


async def test_an_agent_that_did_not_join_is_refused_where_devices_are_required(
    router_url: str, tmp_path: Path
) -> None:
    settings = {"router": {"url": router_url}, "device_dir": str(tmp_path / "none")}
    async with engine_server(tmp_path) as server, running_agent(FakeEngine(server), **settings) as running:
        sender = running.agent.heartbeat
        assert sender is not None
        await until(lambda: sender.outcome == "unauthorised")


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        ("http://127.0.0.1:9", "ist-" + "a" * 32, "No router answers"),
        ("ftp://example", "ist-" + "a" * 32, "router"),
        ("http://127.0.0.1:9", "short", "no token of a router"),
    ],
)
def test_what_cannot_work_is_one_line(tmp_path: Path, url: str, token: str, words: str) -> None:
    done = _run(tmp_path, "edge", "join", url, "--token", token)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert token not in done.stderr
