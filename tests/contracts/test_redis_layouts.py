"""The store on every layout of Redis: an ACL user over mutual TLS, a Sentinel group that fails over, a Cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.clock import SystemClock
from shared.errors import SettingsError, StateUnavailable
from shared.state.address import Layout, RedisAddress, RedisTls, place_of
from shared.state.link import RedisLink
from shared.state.redis import RedisStateStore
from shared.testing.certificates import Authority
from shared.testing.redis_server import Cluster, RedisServer, SentinelGroup, binary
from tests.contracts.test_state_store import beat

pytestmark = pytest.mark.redis


def store_at(address: RedisAddress, fleet: str = "fleet") -> RedisStateStore:
    return RedisStateStore(RedisLink(address, SystemClock()), SystemClock(), ttl_s=60, fleet=fleet)


async def answers(store: RedisStateStore, backend_id: str = "pi-1", sequence: int = 1) -> None:
    """Return once a beat goes in and comes out."""
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        try:
            await store.publish(beat(backend_id, sequence=sequence))
            if any(r.heartbeat.backend_id == backend_id for r in await store.reports()):
                return
        except StateUnavailable:
            await asyncio.sleep(0.1)
    raise AssertionError("the store does not answer")


@pytest.fixture
def group() -> Iterator[SentinelGroup]:
    if binary() is None:
        pytest.skip("redis-server is not installed")
    with SentinelGroup() as opened:
        yield opened


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    if binary() is None:
        pytest.skip("redis-server is not installed")
    with Cluster() as opened:
        yield opened


async def test_an_acl_user_over_mutual_tls_alone(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    own, client, stranger = ours.pair("redis"), ours.pair("router"), theirs.pair("stranger")
    server = RedisServer(
        "--tls-cert-file", str(own.cert), "--tls-key-file", str(own.key), "--tls-ca-cert-file", str(ours.ca),
        "--user", *["router", "on", ">open-sesame", "~isthmus:*", "+@all", "-@admin", "-@dangerous", "+info"],
        "--user", "default", "off", tls=RedisTls(ours.ca, client.cert, client.key),
    )  # fmt: skip
    server.start()
    at = f"rediss://127.0.0.1:{server.port}"
    trusting = RedisTls(ours.ca, client.cert, client.key)
    good = RedisAddress(url=at, username="router", password="open-sesame", tls=trusting)
    bad = [
        RedisAddress(url=at, username="router", password="wrong", tls=trusting),
        RedisAddress(url=at, tls=trusting),
        RedisAddress(url=at, username="router", password="open-sesame", tls=RedisTls(ours.ca)),
        RedisAddress(
            url=at, username="router", password="open-sesame", tls=RedisTls(ours.ca, stranger.cert, stranger.key)
        ),
        RedisAddress(url=at, username="router", password="open-sesame", tls=RedisTls(theirs.ca)),
        RedisAddress(port=server.port, username="router", password="open-sesame"),
    ]
    store = store_at(good)
    try:
        await answers(store)
        for address in bad:
            refused = store_at(address)
            with pytest.raises(StateUnavailable) as caught:
                await refused.reports()
            assert "open-sesame" not in str(caught.value)
            await refused.close()
        ours.pair("router")  # renewed: the next command connects with it
        await answers(store, sequence=2)
    finally:
        await store.close()
        server.stop()


async def test_a_sentinel_group_fails_over_and_everything_is_read_again(group: SentinelGroup) -> None:
    """A demoted master's beats that did not reach the replica are no ghosts, and writes go on at the new one."""
    store = store_at(RedisAddress(url=group.url))
    try:
        await answers(store, "pi-1")
        group.wait_replicated()
        group.kill_master()
        await answers(store, "pi-2")
        assert [r.heartbeat.backend_id for r in await store.reports()] == ["pi-1", "pi-2"]
    finally:
        await store.close()


async def test_a_cluster_is_followed_to_the_node_that_holds_the_fleet(cluster: Cluster) -> None:
    """Fleets of several names lie on both nodes; the address names one of them."""
    stores = {name: store_at(RedisAddress(url=cluster.url), fleet=name) for name in ("a", "b", "c", "d", "e")}
    try:
        for name, store in stores.items():
            await answers(store, name)
        for name, store in stores.items():
            assert [r.heartbeat.backend_id for r in await store.reports()] == [name], "fleets do not mix"
            await store.forget(name)
            assert await store.reports() == ()
        assert all(count > 0 for count in cluster.commands()), "both nodes were used"
    finally:
        for store in stores.values():
            await store.close()


async def test_everything_is_read_again_after_a_restart_that_lost_the_memory() -> None:
    server = RedisServer()
    server.start()
    store = store_at(RedisAddress(url=server.url))
    other = store_at(RedisAddress(url=server.url))
    try:
        for name in ("kept", "gone"):
            await answers(other, name)
        assert len(await store.reports()) == 2
        server.restart()
        await answers(other, "kept", sequence=2)
        await answers(store, "kept", sequence=3)
        assert [r.heartbeat.backend_id for r in await store.reports()] == ["kept"], "a ghost of the old memory"
    finally:
        await store.close()
        await other.close()
        server.stop()


@pytest.mark.parametrize(
    ("url", "layout", "hosts", "service"),
    [
        ("redis://h", Layout.SINGLE, (("h", 6379),), None),
        ("rediss://u:p%40ss@h:7000/3", Layout.SINGLE, (("h", 7000),), None),
        ("redis+sentinel://:pw@a,b:26380,[::1]:26381/mymaster/2", Layout.SENTINEL,
         (("a", 26379), ("b", 26380), ("::1", 26381)), "mymaster"),
        ("rediss+cluster://a:7000,b:7001", Layout.CLUSTER, (("a", 7000), ("b", 7001)), None),
    ],
)  # fmt: skip
def test_addresses_are_read(url: str, layout: Layout, hosts: tuple[tuple[str, int], ...], service: str | None) -> None:
    place = place_of(RedisAddress(url=url))
    assert (place.layout, place.hosts, place.service) == (layout, hosts, service)
    assert (place.tls is not None) is url.startswith("rediss")
    assert place.password in (None, "p@ss", "pw")


@pytest.mark.parametrize(
    "url",
    ["", "h:6379", "http://h", "redis://", "redis://a,b", "redis+sentinel://a,b", "redis+cluster://a/1", "redis://h/x",
     "redis://h:0", "redis://h:99999", "redis://secret@[h/0", "redis://h?db=1", "rediss://h?nonsense=secret",
     "unix://", "redis+other://h", "redis://h/0/1", "redis://user:secret@ho st"],
)  # fmt: skip
def test_other_addresses_are_refused_without_an_echo(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        place_of(RedisAddress(url=url))
    assert refused.value.param == "router.state.url"
    assert "secret" not in refused.value.message
