"""Several workers on one port as processes: they count, limit, know the fleet and write the log as one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from router.audit.files import load_key, newest_records
from router.audit.verification import verify
from shared.fleet import BackendState, Heartbeat, ServedModel
from shared.keys import hashed
from shared.testing import answers
from shared.testing.answers import MODEL, Answer
from shared.testing.program import Program, child_environment, command, isthmus
from shared.testing.upstream import Exchange, Upstream

KEY = "isk-of-the-family"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Which city is the capital of France?"}]}


class Family:
    """A running parent with two workers."""

    def __init__(self, program: Program, url: str, session: aiohttp.ClientSession) -> None:
        self.program = program
        self.url = url
        self.asked = self.served = 0
        self._session = session

    async def ask(self, *, key: str = KEY, **headers: str) -> tuple[int, str]:
        """Status and class, over a connection of its own: the kernel picks the worker."""
        sent = {"Authorization": f"Bearer {key}", "Connection": "close", **headers}
        async with self._session.post(f"{self.url}/v1/chat/completions", json=BODY, headers=sent) as response:
            await response.read()
            self._count(response.status)
            return response.status, response.headers.get("x-isthmus-class", "")

    async def said(self, text: str) -> str:
        """The answer of a model that a cloud alone serves, in one session, from whichever worker."""
        sent = {"Authorization": f"Bearer {KEY}", "Connection": "close", "x-session-id": "masked"}
        body = {"model": "far-model", "messages": [{"role": "user", "content": text}]}
        async with self._session.post(f"{self.url}/v1/chat/completions", json=body, headers=sent) as response:
            self._count(response.status)
            assert response.status == 200, await response.text()
            return str((await response.json())["choices"][0]["message"]["content"])

    def _count(self, status: int) -> None:
        self.asked += 1
        self.served += status == 200

    async def shown(self, view: str) -> Any:
        """A view of the console, from whichever worker."""
        sent = {"Authorization": f"Bearer {KEY}", "Connection": "close"}
        async with self._session.get(f"{self.url}/admin/v1/{view}", headers=sent) as response:
            return await response.json()

    async def metric(self, name: str) -> float:
        headers = {"Authorization": f"Bearer {KEY}", "Connection": "close"}
        async with self._session.get(f"{self.url}/metrics", headers=headers) as response:
            lines = (await response.text()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    async def report(self, upstream: Upstream, sequence: int) -> int:
        beat = Heartbeat(
            backend_id="pi-1", instance="instance-a", sequence=sequence, url=upstream.url, state=BackendState.READY,
            models=(ServedModel(model_id=MODEL, context_tokens=4096),),
        )  # fmt: skip
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Connection": "close"}
        url = f"{self.url}/fleet/v1/heartbeats"
        async with self._session.post(url, data=beat.model_dump_json(), headers=headers) as response:
            return response.status

    def workers(self) -> list[int]:
        found = subprocess.run(
            ["pgrep", "-P", str(self.program.process.pid)], capture_output=True, text=True, check=False
        )
        return [int(line) for line in found.stdout.split()]


@pytest.fixture
async def family(
    tmp_path: Path, edge: Upstream, cloud: Upstream, free_port: Callable[[], int]
) -> AsyncIterator[Family]:
    port = free_port()
    keys = [
        {"name": "all", "sha256": hashed(KEY), "scopes": ["inference", "fleet:report", "admin"]},
        {"name": "limited", "sha256": hashed("isk-limited"), "requests_per_minute": 7, "concurrent": 7},
    ]
    settings: dict[str, dict[str, Any]] = {
        "router": {"port": port, "workers": 2, "keys": keys, "state": {"refresh_ms": 50}}
    }
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{name: masked, match: {class: personal, model: far-model}, act: {action: mask}}]\n")
    settings["router"]["policy"] = {"stale_after_ms": 60_000, "file": str(policy)}
    settings["router"]["clouds"] = [{"id": "cloud-1", "url": cloud.url, "models": [{"id": "far-model"}]}]
    with isthmus("router", "serve", home=tmp_path, settings=settings) as program:
        url = f"http://127.0.0.1:{port}"
        await asyncio.to_thread(program.wait_answer, f"{url}/readyz", 90)
        async with aiohttp.ClientSession() as session:
            found = Family(program, url, session)
            async with asyncio.timeout(60):
                while program.log.read_text().count('"listening"') < 2:
                    await asyncio.sleep(0.1)
            yield found


async def test_two_workers_are_one_router(family: Family, edge: Upstream, cloud: Upstream, tmp_path: Path) -> None:
    """Fleet, limits, session pins, metrics and audit chain are shared; a killed worker is replaced and loses none."""
    assert await family.report(edge, 1) == 204
    await _until(lambda: _all_served(family))
    before = await family.metric("isthmus_router_requests_total{")
    statuses = [status for status, _ in await asyncio.gather(*(family.ask() for _ in range(24)))]
    assert statuses == [200] * 24
    assert await family.metric("isthmus_router_requests_total{") - before == 24

    limited = await asyncio.gather(*(family.ask(key="isk-limited") for _ in range(20)))
    assert sorted(status for status, _ in limited) == [200] * 7 + [429] * 13

    first = await family.ask(**{"x-session-id": "conversation", "x-isthmus-privacy": "secret"})
    later = [await family.ask(**{"x-session-id": "conversation"}) for _ in range(8)]
    assert [first, *later] == [(200, "secret")] * 9, "no worker forgets what another was told"

    await _one_session_is_masked_alike(family, cloud)
    await _consoles_show_the_same(family)

    counted = await family.metric("isthmus_router_requests_total{")
    [victim, _] = family.workers()
    os.kill(victim, signal.SIGKILL)
    await _until(lambda: _replaced(family, victim))
    assert await family.metric("isthmus_router_requests_total{") == counted
    assert await family.report(edge, 2) == 204, "what the fleet last was, the parent knows"
    await _until(lambda: _all_served(family))

    family.program.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(family.program.process.wait, 30) == 0
    assert '"unhandled"' not in family.program.log.read_text()
    folder = tmp_path / "audit"
    found = verify(folder, load_key(tmp_path / "audit.key", create=False))
    assert found.fault is None
    served = [r for r in newest_records(folder) if r["kind"] == "request" and r["outcome"] == "ok"]
    assert len(served) >= 24 + 7 + 9 + 1
    assert len({r["decision_id"] for r in served}) == len(served)


def test_workers_that_cannot_start_end_the_parent_with_their_code(tmp_path: Path, free_port: Callable[[], int]) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{nonsense: 1}]\n")
    config = tmp_path / "isthmus.yaml"
    config.write_text(f"router: {{port: {free_port()}, policy: {{file: {policy}}}}}\n")
    ended = subprocess.run(
        [*command(), "router", "serve", "--workers", "2", "--config", str(config)],
        env=child_environment(tmp_path), capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "error:" in ended.stderr


async def _one_session_is_masked_alike(family: Family, cloud: Upstream) -> None:
    """Whichever worker a turn meets, a value has one placeholder, and it comes back."""
    seen: list[str] = []

    def echo(exchange: Exchange) -> Answer:
        seen.append(orjson.loads(exchange.body)["messages"][-1]["content"])
        return answers.completion(seen[-1])

    cloud.default = echo
    cards = ["4111 1111 1111 1111", "5555 5555 5555 4444", "3782 822463 10005"]
    for n in range(12):
        card = cards[n % 3]
        assert await family.said(f"My card is {card}.") == f"My card is {card}."
    assert seen == [f"My card is [CARD_{n % 3 + 1}]." for n in range(12)]
    cloud.default = lambda exchange: answers.completion("It was [CARD_1] or [CARD_3].")
    for _ in range(8):
        assert await family.said(f"My card is {cards[1]}.") == f"It was {cards[0]} or {cards[2]}."


async def _consoles_show_the_same(family: Family) -> None:
    """Each worker's console comes to count every request that any of them met, and lists the same decisions."""

    async def together() -> bool:
        points = [await family.shown("live") for _ in range(6)]
        totals = {sum(sum(point["requests"].values()) for point in each["points"]) for each in points}
        return totals == {family.asked}

    await _until(together)
    newest = [[row["decision_id"] for row in (await family.shown("decisions?limit=5"))["decisions"]] for _ in range(6)]
    assert all(each == newest[0] and len(each) == 5 for each in newest)
    fleets = [await family.shown("fleet") for _ in range(6)]
    assert {sum(each["attempts_5min"] for each in fleet["backends"]) for fleet in fleets} == {family.served}


async def _all_served(family: Family) -> bool:
    """Whether every worker knows the backend: that the kernel gives 24 connections to one of two has odds of 2^-23."""
    return [status for status, _ in await asyncio.gather(*(family.ask() for _ in range(24)))] == [200] * 24


async def _replaced(family: Family, victim: int) -> bool:
    alive = family.workers()
    return victim not in alive and len(alive) == 2 and family.program.log.read_text().count('"listening"') == 3


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.1)
