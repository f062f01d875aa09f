"""A fleet under attack: routers that share a Redis, echoing backends, a toxic proxy on every way, and tormentors."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from shared.fleet import BackendState, Heartbeat, ServedModel, ThermalLevel
from shared.keys import hashed
from shared.testing import answers
from shared.testing.answers import MODEL, Answer
from shared.testing.redis_pair import follow, until
from shared.testing.redis_server import RedisServer
from shared.testing.toxics import ToxicProxy
from shared.testing.upstream import Exchange, Upstream
from tests.router.conftest import RunningRouter, StartRouter, eventually
from tests.simulation.questions import CARD, POLICY, TENANTS, Asker, Tally, echoed

_REPORTER_KEY = "isk-of-the-agents"
_REPORTER = {"name": "agents", "sha256": hashed(_REPORTER_KEY), "scopes": ["fleet:report"]}
_DIGEST = "sha256:" + "d" * 64
_BEAT_S = 0.5
_ANSWER_LIMIT_S = 20
_REFUSED_REST_S = 0.4
"""At most; a short storm has no time for the second that `Retry-After` says."""
_KEPT_EXCHANGES = 1_000
Fault = Callable[[float], Awaitable[None]]
"""Breaks something for so many seconds, and mends it."""


@dataclass
class Grounds:
    """All parts, and the proxies between them: `fronts` before the routers, `beats` between agents and the first of
    them, `backends` between routers and backends (two agents and a cloud), `store` between routers and Redis, whose
    replica is `spare`."""

    routers: list[RunningRouter]
    redis: RedisServer
    upstreams: list[Upstream]
    fronts: list[ToxicProxy]
    beats: ToxicProxy
    backends: list[ToxicProxy]
    store: ToxicProxy
    spare: RedisServer
    leaks: list[str] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)

    def heal(self) -> None:
        """Pass everything on again."""
        for proxy in (*self.fronts, self.beats, *self.backends, self.store):
            proxy.heal()

    async def settled(self) -> None:
        """Return once no router has anything open."""
        for router in self.routers:
            await eventually(lambda router=router: router.in_flight() == 0)  # type: ignore[misc]
            await eventually(lambda router=router: router.metric("isthmus_router_in_flight") == 0)  # type: ignore[misc]
            await eventually(lambda router=router: router.router.lifecycle.in_flight == 0)  # type: ignore[misc]

    def leases(self) -> int:
        """Places at the same time that Redis still counts as taken, over all tenants."""
        holders = [f"isthmus:{{fleet:{tenant.name}}}:v2:leases" for tenant in TENANTS]
        counted = [self.redis.command("ZCARD", holder) for holder in holders]
        return sum(int(each.strip(b":\r\n")) for each in counted)


@contextlib.asynccontextmanager
async def grounds(start_router: StartRouter, folder: Path, redis: RedisServer) -> AsyncIterator[Grounds]:
    """Everything started and known to both routers; agents report until the end."""
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        leaks: list[str] = []
        upstreams = [await enter(Upstream(default=_echo)) for _ in range(2)]
        upstreams.append(await enter(Upstream(default=lambda exchange: _echo_of_cloud(exchange, leaks))))
        backends = [await enter(ToxicProxy(each.url)) for each in upstreams]
        spare = stack.enter_context(RedisServer())
        follow(spare, redis)
        store = await enter(ToxicProxy(redis.url))
        settings = _settings(policy, backends[2].url, store.url)
        routers = [await start_router(**settings) for _ in range(2)]
        fronts = [await enter(ToxicProxy(each.url)) for each in routers]
        beats = await enter(ToxicProxy(routers[0].url))
        made = Grounds(routers, redis, upstreams, fronts, beats, backends, store, spare, leaks)
        reporting = asyncio.create_task(_report(made))
        try:
            for router in routers:
                await eventually(lambda known=router.router.directory: len(known.snapshot().backends) == 3)  # type: ignore[misc]
            yield made
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)


def _settings(policy: Path, cloud_url: str, store_url: str) -> dict[str, Any]:
    model = {"id": MODEL, "digest": _DIGEST, "context_tokens": 4096, "features": ["continuation"]}
    return {
        "clouds": [{"id": "cloud-1", "url": cloud_url, "models": [model]}],
        "policy": {"file": policy},
        "keys": [*(tenant.settings() for tenant in TENANTS), _REPORTER],
        "state": {"kind": "redis", "url": store_url.replace("http://", "redis://")},
        "timeouts": {"connect_s": 1, "first_token_s": 1.5, "idle_s": 1, "answer_s": 1.5},
        "retry": {"budget_ratio": 0.5},
    }


def _echo(exchange: Exchange) -> Answer:
    body = orjson.loads(exchange.body)
    words = echoed(body)
    return answers.stream(*words, gap_s=0.004) if body.get("stream") else answers.completion("".join(words))


def _echo_of_cloud(exchange: Exchange, leaks: list[str]) -> Answer:
    if CARD.search(exchange.body.decode()):
        leaks.append("a card reached the cloud")
    return _echo(exchange)


async def _report(on: Grounds) -> None:
    """Two agents that report for ever to the first router, unless they are dead; the second one learns of them from
    Redis."""
    sequence, timeout = 0, aiohttp.ClientTimeout(total=1)
    models = (ServedModel(model_id=MODEL, context_tokens=4096, digest=_DIGEST, features=("continuation",)),)
    headers = {"Authorization": f"Bearer {_REPORTER_KEY}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as http:
        while True:
            sequence += 1
            beats = [
                Heartbeat(
                    backend_id=f"edge-{n}", instance=f"instance-{n}", sequence=sequence, url=proxy.url,
                    state=BackendState.READY, level=ThermalLevel.NOMINAL, models=models,
                    decode_tokens_per_s=200.0, prefill_tokens_per_s=2000.0,
                )
                for n, proxy in enumerate(on.backends[:2]) if n not in on.dead
            ]  # fmt: skip
            await asyncio.gather(*(_sent(http, on.beats.url, beat) for beat in beats))
            for upstream in on.upstreams:  # what was asked is looked at when it comes
                del upstream.exchanges[:-_KEPT_EXCHANGES], upstream.connections[:-_KEPT_EXCHANGES]
            await asyncio.sleep(_BEAT_S)


async def _sent(http: aiohttp.ClientSession, url: str, beat: Heartbeat) -> None:
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
        async with http.post(f"{url}/fleet/v1/heartbeats", data=beat.model_dump_json()) as answer:
            await answer.read()


async def ask_until(url: str, asker: Asker, tally: Tally, until_s: float, draw: random.Random) -> None:
    """One client that asks again and again until the loop's clock shows `until_s`. Who is told to come later rests for
    longer, as clients do: refusals take no time, and would otherwise outnumber all answers of a short outage."""
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as http:
        while loop.time() < until_s:
            status = None
            try:
                async with asyncio.timeout(_ANSWER_LIMIT_S):
                    status = await _ask(http, url, asker, tally)
            except TimeoutError:
                tally.hung()
            except (aiohttp.ClientError, OSError):
                tally.ends["left"] += 1  # the way to the router broke: that is this client's own trouble
            await asyncio.sleep(draw.random() * (_REFUSED_REST_S if status == 503 else 0.02))


async def _ask(http: aiohttp.ClientSession, url: str, asker: Asker, tally: Tally) -> int:
    """The status of the answer."""
    asked = asker.next()
    route = url + "/v1/chat/completions"
    async with http.post(route, data=asked.body(), headers=asked.headers()) as response:
        tier = response.headers.get("x-isthmus-tier")
        if asked.leaves and response.status == 200:
            tally.take(asked, 200, tier, await response.content.readany())
            response.close()
        else:
            tally.take(asked, response.status, tier, await response.read())
        return response.status


class Torment:
    """Spoils one thing of a kind at a time until the time is over; `used` counts how. Of the backends one is spoilt at
    a time, so that policy always has somewhere to go; what lies elsewhere breaks at the same time."""

    def __init__(self, on: Grounds, seed: int, until_s: float, *, calm_s: float) -> None:
        """`calm_s` is how long each kind rests between two faults, on average."""
        self._calm_s = calm_s
        self._on = on
        self._seed = seed
        self._until_s = until_s
        self.used = Counter[str]()

    async def run(self) -> None:
        on = self._on
        async with asyncio.TaskGroup() as group:
            group.create_task(self._spoil("backend", on.backends, self._deaths()))
            group.create_task(self._spoil("client", on.fronts, (), seldom=True))
            group.create_task(self._spoil("agent", [on.beats], ()))
            group.create_task(self._spoil("redis", [on.store], self._redis_faults()))

    async def _spoil(
        self,
        name: str,
        proxies: list[ToxicProxy],
        more: Iterable[tuple[str, Fault]],
        *,
        seldom: bool = False,
    ) -> None:
        loop, draw, others = asyncio.get_running_loop(), random.Random(f"{self._seed} {name}"), dict(more)
        left: list[str] = []
        while loop.time() < self._until_s:
            await asyncio.sleep(self._calm_s * (0.5 + draw.random()) * (4 if seldom else 1))
            # All kinds in turn, in an order that changes: also a storm of seconds has each of them.
            left = left or draw.sample(kinds := [*_TOXICS, *others], len(kinds))
            kind, for_s = left.pop(), 0.2 + draw.random() * 0.6
            self.used[f"{name}: {kind}"] += 1
            if kind in others:
                await others[kind](for_s)
                continue
            proxy = draw.choice(proxies)
            _TOXICS[kind](proxy)
            await asyncio.sleep(for_s)
            proxy.heal()
            if kind == "half-open":
                proxy.reset()  # nothing that was swallowed comes back

    def _deaths(self) -> Iterable[tuple[str, Fault]]:
        async def die(at: int, for_s: float) -> None:
            self._on.dead.add(at)
            await self._on.upstreams[at].refuse()
            await asyncio.sleep(for_s)
            await self._on.upstreams[at].accept()
            self._on.dead.discard(at)

        for at in range(len(self._on.upstreams)):
            yield f"death of {at}", lambda for_s, at=at: die(at, for_s)  # type: ignore[misc]

    def _redis_faults(self) -> Iterable[tuple[str, Fault]]:
        redis, spare, store = self._on.redis, self._on.spare, self._on.store

        async def frozen(for_s: float) -> None:
            redis.freeze()
            await asyncio.sleep(2 * for_s)
            redis.thaw()

        async def killed(_: float) -> None:
            await asyncio.to_thread(redis.restart)

        async def demoted(for_s: float) -> None:
            """It refuses to write, as after a failover to another server."""
            redis.command("REPLICAOF", "127.0.0.1", "1")
            await asyncio.sleep(for_s)
            redis.command("REPLICAOF", "NO", "ONE")

        async def failed_over(for_s: float) -> None:
            """The replica takes over for a while, and the name comes to mean it; nobody cuts a connection."""
            for primary, replica in ((redis, spare), (spare, redis)):
                await until(lambda each=replica: b"master_link_status:up" in each.command("INFO", "replication"))  # type: ignore[misc]
                replica.command("REPLICAOF", "NO", "ONE")
                store.move(replica.url)
                follow(primary, replica)
                await asyncio.sleep(for_s)

        faults = (("frozen", frozen), ("killed", killed), ("demoted", demoted), ("failed over", failed_over))
        yield from faults


_TOXICS: dict[str, Callable[[ToxicProxy], object]] = {
    "latency": lambda proxy: setattr(proxy, "latency_s", 0.03),
    "cut": ToxicProxy.cut,
    "reset": ToxicProxy.reset,
    "half-open": lambda proxy: setattr(proxy, "silent", True),
    "slow close": lambda proxy: setattr(proxy, "slow_close_s", 0.3),
}
