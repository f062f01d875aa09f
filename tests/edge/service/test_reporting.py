"""Reports into the Redis that routers read: what arrives, and that a Redis which is gone disturbs nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.enrolment import reporter_of
from edge.packages.signing_key import SigningKey
from edge.service.reporting import Outcome
from edge.settings import EdgeSettings
from shared import enrolment
from shared.clock import SystemClock
from shared.errors import SettingsError
from shared.fleet import BackendState, Heartbeat
from shared.settings import load
from shared.state.address import RedisAddress
from shared.state.link import RedisLink
from shared.state.redis import RedisStateStore
from shared.testing.redis_server import RedisServer
from tests.edge.service.fakes import FakeEngine
from tests.edge.service.harness import running_agent, until


@pytest.mark.redis
async def test_an_agent_reports_to_the_redis_of_the_routers(engine: FakeEngine, redis_server: RedisServer) -> None:
    store = RedisStateStore(RedisLink(RedisAddress(url=redis_server.url), SystemClock()), SystemClock(), ttl_s=60)
    router = {"redis": {"url": redis_server.url}}
    try:
        async with running_agent(engine, router=router, backend_id="pi-1") as running:
            sender = running.agent.heartbeat
            assert sender is not None
            await until(lambda: sender.outcome is Outcome.ACCEPTED)
            assert running.agent.status()["router"] == {"url": "redis", "reports": "accepted"}
            [report] = await store.reports()
            assert (report.heartbeat.backend_id, report.heartbeat.url) == ("pi-1", running.url)
            redis_server.freeze()
            await until(lambda: sender.outcome is Outcome.UNREACHABLE)
            async with running.chat() as response:
                assert response.status == 200
            redis_server.thaw()
            await until(lambda: sender.outcome is Outcome.ACCEPTED)
        [farewell] = await store.reports()
        assert farewell.heartbeat.state is BackendState.DRAINING
    finally:
        await store.close()


@pytest.mark.redis
async def test_a_beat_that_is_older_than_what_is_known_is_out_of_order(redis_server: RedisServer) -> None:
    settings = load(EdgeSettings, "edge", router={"redis": {"host": "127.0.0.1", "port": redis_server.port}})
    reporter = reporter_of(settings, None, SystemClock())
    assert reporter is not None
    beat = Heartbeat(backend_id="pi", instance="instance-a", sequence=5, url="http://pi:1", state=BackendState.READY)
    try:
        assert await reporter.report(beat) is Outcome.ACCEPTED
        assert await reporter.report(beat.model_copy(update={"sequence": 4})) is Outcome.OUT_OF_ORDER
    finally:
        await reporter.close()


@pytest.mark.redis
async def test_beats_into_redis_are_signed_by_the_device(redis_server: RedisServer, tmp_path: Path) -> None:
    key = SigningKey.generate()
    key.write(tmp_path, "device")
    fields = {"router": {"redis": {"port": redis_server.port}}, "device_dir": str(tmp_path)}
    reporter = reporter_of(load(EdgeSettings, "edge", **fields), None, SystemClock())
    link = RedisLink(RedisAddress(port=redis_server.port), SystemClock())
    store = RedisStateStore(link, SystemClock(), ttl_s=60)
    assert reporter is not None
    beat = Heartbeat(backend_id="signs", instance="instance-s", sequence=1, url="http://s:1", state=BackendState.READY)
    try:
        assert await reporter.report(beat) is Outcome.ACCEPTED
        (signed,) = [each.signed for each in await store.reports() if each.heartbeat.backend_id == "signs"]
    finally:
        await reporter.close()
        await store.close()
    assert signed is not None
    found = enrolment.read_signature(signed.signature)
    assert found is not None
    assert found[0] == enrolment.device_id_of(key.public.public_bytes_raw())
    key.public.verify(found[1], enrolment.reporting(signed.body))


def test_without_a_router_nothing_is_reported() -> None:
    assert reporter_of(load(EdgeSettings, "edge"), None, SystemClock()) is None


@pytest.mark.parametrize(
    ("router", "param"),
    [
        ({"url": "http://r", "redis": {}}, "edge.router"),
        ({"redis": {"port": 0}}, "edge.router.redis.port"),
        ({"redis": {"pasword_file": "x"}}, "edge.router.redis.pasword_file"),
    ],
)
def test_settings_that_contradict_are_refused(router: dict[str, object], param: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(EdgeSettings, "edge", router=router)
    assert refused.value.param == param


@pytest.mark.parametrize("field", ["key_file", "redis"])
def test_a_secret_that_cannot_be_read_stops_the_start(tmp_path: Path, field: str) -> None:
    missing = str(tmp_path / "none")
    router = {"redis": {"password_file": missing}} if field == "redis" else {"url": "http://r", "key_file": missing}
    with pytest.raises(SettingsError) as refused:
        reporter_of(load(EdgeSettings, "edge", router=router), None, SystemClock())
    assert refused.value.param in ("edge.router.key_file", "edge.router.redis.password_file")
