"""The router as a process: starts on loopback, drains on the first signal, leaves at once on the second."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import orjson
import pytest

from router.app import check_binding
from router.settings import RouterSettings
from shared.errors import SettingsError
from shared.openai.sse import DONE
from shared.settings import load
from shared.testing import answers
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream

BODY = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "hi"}]}


class Process:
    def __init__(self, port: int, home: Path, upstream: Upstream, **settings: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        clouds = orjson.dumps([{"id": "cloud-1", "url": upstream.url}]).decode()
        environment = {
            **os.environ,
            "ISTHMUS_HOME": str(home),
            "ISTHMUS__ROUTER__CLOUDS": clouds,
            **{f"ISTHMUS__ROUTER__{name.upper()}": value for name, value in settings.items()},
        }
        code = "import sys; from shared.cli import main; sys.exit(main())"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "router", "serve", "--port", str(port)],
            env=environment,
            stderr=subprocess.PIPE,
        )

    async def ready(self, session: aiohttp.ClientSession) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                async with session.get(f"{self.url}/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
        raise AssertionError("the router did not become ready")

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self.process.wait, 15)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


async def test_a_running_stream_ends_whole_while_new_work_is_refused(
    tmp_path: Path, cloud: Upstream, free_port: Callable[[], int], session: aiohttp.ClientSession
) -> None:
    """UP-01: readiness fails at once, the stream completes, new requests get 503, the exit is clean."""
    cloud.script(answers.stream(*["x"] * 20, gap_s=0.1))
    router = Process(free_port(), tmp_path, cloud)
    try:
        await router.ready(session)
        async with session.post(f"{router.url}/v1/chat/completions", json=BODY) as response:
            first = await response.content.readany()
            router.process.send_signal(signal.SIGTERM)
            await _draining(session, router.url)
            async with session.post(f"{router.url}/v1/chat/completions", json=BODY) as refused:
                assert refused.status == 503 and refused.headers["Connection"] == "close"
                assert (await refused.json())["error"]["code"] == "draining"
            received = first + await response.read()
        assert received.endswith(DONE)
        assert await router.exit_code() == 0
    finally:
        router.end()


async def test_at_the_drain_limit_a_stream_gets_an_error_event(
    tmp_path: Path, cloud: Upstream, free_port: Callable[[], int], session: aiohttp.ClientSession
) -> None:
    """UP-01: the limit ends what does not end by itself, honestly."""
    cloud.script(answers.stream(*["x"] * 500, gap_s=0.1))
    router = Process(free_port(), tmp_path, cloud, drain_limit_s="0.5")
    try:
        await router.ready(session)
        async with session.post(f"{router.url}/v1/chat/completions", json=BODY) as response:
            await response.content.readany()
            router.process.send_signal(signal.SIGTERM)
            received = await response.read()
        assert b'"code":"draining"' in received and DONE not in received
        assert await router.exit_code() == 0
    finally:
        router.end()


async def test_a_second_signal_leaves_at_once(
    tmp_path: Path, cloud: Upstream, free_port: Callable[[], int], session: aiohttp.ClientSession
) -> None:
    """UP-01."""
    cloud.script(answers.stream(*["x"] * 500, gap_s=0.1))
    router = Process(free_port(), tmp_path, cloud)
    try:
        await router.ready(session)
        async with session.post(f"{router.url}/v1/chat/completions", json=BODY) as response:
            await response.content.readany()
            router.process.send_signal(signal.SIGTERM)
            await _draining(session, router.url)
            router.process.send_signal(signal.SIGTERM)
            assert await router.exit_code() == 130
    finally:
        router.end()


async def test_a_taken_port_is_one_line(tmp_path: Path, cloud: Upstream) -> None:
    port = int(cloud.url.rsplit(":", 1)[1])
    router = Process(port, tmp_path, cloud)
    try:
        assert await router.exit_code() == 2
        assert router.process.stderr is not None
        lines = router.process.stderr.read().decode().splitlines()
        assert len(lines) == 1 and "already in use" in lines[0]
    finally:
        router.end()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_listening_beyond_loopback_needs_keys(host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_binding(RouterSettings(host=host))
    assert caught.value.param == "router.keys"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    check_binding(RouterSettings(host=host))


def test_settings_from_a_file_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "isthmus.yaml"
    path.write_text("router:\n  port: 9000\n  clouds: [{id: c, url: 'http://x:1'}]\n  policy: {mode: fastest}\n")
    monkeypatch.setenv("ISTHMUS__ROUTER__TIMEOUTS__IDLE_S", "3")
    settings = load(RouterSettings, "router", path, port=None)
    assert (settings.port, settings.timeouts.idle_s, settings.policy.mode) == (9000, 3, "fastest")
    for text, param in (
        ("router: {clouds: [{id: a, url: 'ftp://x'}]}", "router.clouds.0.url"),
        ("router: {clouds: [{id: a, url: 'http://x'}], edges: [{id: a, url: 'http://y'}]}", "router."),
        ("router: {timeouts: {idel_s: 3}}", "router.timeouts.idel_s"),
    ):
        path.write_text(text)
        with pytest.raises(SettingsError) as caught:
            load(RouterSettings, "router", path)
        assert caught.value.param == param


async def _draining(session: aiohttp.ClientSession, url: str) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        async with session.get(f"{url}/readyz") as response:
            if response.status == 503:
                return
        await asyncio.sleep(0.01)
    raise AssertionError("readiness did not end")


async def test_sighup_takes_a_changed_policy_over_at_once(
    tmp_path: Path, cloud: Upstream, free_port: Callable[[], int], session: aiohttp.ClientSession
) -> None:
    """And a bad one leaves everything as it is; the process lives on."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: []\n")
    section = orjson.dumps({"file": str(policy), "reload_s": 3600}).decode()
    router = Process(free_port(), tmp_path, cloud, policy=section)

    async def reloads(outcome: str) -> bool:
        async with session.get(f"{router.url}/metrics") as response:
            return f'policy_reloads_total{{outcome="{outcome}"}} 1.0' in await response.text()

    async def hangup(outcome: str) -> None:
        router.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 10
        while not await reloads(outcome):
            assert time.monotonic() < deadline, f"not {outcome}"
            await asyncio.sleep(0.05)

    try:
        await router.ready(session)
        await hangup("unchanged")
        policy.write_text("rules: [{name: cap, act: {output_cap_tokens: 3}}]\n")
        await hangup("applied")
        policy.write_text("rules: [{name: cap, act: {output_cap_token: 3}}]\n")
        await hangup("refused")
        async with session.post(f"{router.url}/v1/chat/completions", json={**BODY, "stream": False}) as response:
            assert response.status == 200
        assert orjson.loads(cloud.exchanges[-1].body)["max_tokens"] == 3
        router.process.send_signal(signal.SIGTERM)
        assert await router.exit_code() == 0
    finally:
        router.end()
