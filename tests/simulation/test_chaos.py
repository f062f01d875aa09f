"""Chaos through whole routers: whatever breaks between the parts, nobody gets what is not theirs, twice or not."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import orjson
import pytest

from router.limits.port import LEASE_MS
from shared.testing.redis_server import RedisServer
from tests.router.conftest import StartRouter, eventually
from tests.simulation.chaos import Grounds, Torment, ask_until, grounds
from tests.simulation.questions import Tally, askers

CLIENTS = 12
SHORT_S = 6.0
_ROOT = Path(__file__).parents[2]
_END_LIMIT_S = 60.0


async def _stormed(on: Grounds, clients: list[asyncio.Task[None]], torment: Torment, tally: Tally) -> None:
    """Torment all parts while the clients ask, then hold what is left against what must be."""
    async with asyncio.TaskGroup() as group:
        group.create_task(torment.run())
        for client in clients:
            group.create_task(_ended(client))
    on.heal()
    told = f"success {tally.success_ratio:.4f}, refused {tally.refused_ratio:.4f}"
    print(f"chaos: {told}, {dict(tally.ends)}, {dict(sorted(torment.used.items()))}")
    assert not tally.faults, tally.faults
    assert not on.leaks, on.leaks
    await on.settled()


async def _ended(task: asyncio.Task[None]) -> None:
    await task


@pytest.mark.redis
async def test_a_short_storm(start_router: StartRouter, tmp_path: Path, redis_server: RedisServer) -> None:
    async with grounds(start_router, tmp_path, redis_server) as on:
        tally, until_s = Tally(), asyncio.get_running_loop().time() + SHORT_S
        fronts = [front.url for front in on.fronts]
        clients = [
            asyncio.create_task(ask_until(fronts[n % 2], asker, tally, until_s, random.Random(n)))
            for n, asker in enumerate(askers(CLIENTS, seed=7))
        ]
        await _stormed(on, clients, Torment(on, 7, until_s, calm_s=0.25), tally)
        assert tally.ends["whole"] > 0 and tally.success_ratio >= 0.9


@pytest.mark.slow
@pytest.mark.redis
async def test_a_long_storm(
    start_router: StartRouter, tmp_path: Path, redis_server: RedisServer, pytestconfig: pytest.Config
) -> None:
    """FO, SSE, RD, RL and MT rows for minutes under locust: at least 99 of 100 of what policy allowed is served whole,
    and afterwards nothing is held."""
    minutes = pytestconfig.getoption("--chaos-minutes", 10.0)
    users = pytestconfig.getoption("--chaos-users", 24)
    async with grounds(start_router, tmp_path, redis_server) as on:
        tally, until_s = Tally(), asyncio.get_running_loop().time() + minutes * 60
        locust = asyncio.create_task(_locust(on, tmp_path, minutes * 60, users, tally))
        await _stormed(on, [locust], Torment(on, 11, until_s, calm_s=2.0), tally)
        assert tally.success_ratio >= 0.99
        assert tally.refused_ratio <= 0.1, "agents were there, and nobody knew of them"
        await eventually(lambda: on.leases() == 0, deadline_s=3 * LEASE_MS / 1000)


async def _locust(on: Grounds, folder: Path, duration_s: float, users: int, tally: Tally) -> None:
    """Locust as a process of its own, for `duration_s`; what its users saw is added to `tally`."""
    report, log = folder / "report.json", folder / "locust.log"
    seen = {"CHAOS_SEED": "11", "CHAOS_REPORT": str(report), "CHAOS_HOSTS": ",".join(f.url for f in on.fronts)}
    command = [
        *(sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py")), "--headless"),
        *("--only-summary", "--exit-code-on-error", "0", "--host", on.fronts[0].url, "--users", str(users)),
        *("--spawn-rate", "20", "--run-time", f"{int(duration_s)}s", "--stop-timeout", "20"),
    ]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, "PYTHONPATH": str(_ROOT), **seen}, stdout=output, stderr=output
        )
        try:
            await asyncio.wait_for(process.wait(), duration_s + _END_LIMIT_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert report.exists(), log.read_text(errors="replace")[-2000:]
    tally.add(orjson.loads(report.read_bytes()))
