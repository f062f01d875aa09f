"""Keys that commands make and the limits they carry, through whole routers: headers, 429, and who counts together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import openai
import pytest

from router.key_console import create, listed, revoke
from router.settings import RouterSettings
from shared.errors import InvalidRequest, NotFound
from shared.keys import KeyLimits, Scope, hashed
from shared.testing import answers
from shared.testing.answers import MODEL
from shared.testing.redis_server import RedisServer
from shared.testing.upstream import Upstream
from tests.router.conftest import RunningRouter, StartRouter, eventually

KEY = "isk-limited"
HEADERS = {"Authorization": f"Bearer {KEY}"}


def limited(**limits: int) -> dict[str, object]:
    return {"keys": [{"name": "app", "sha256": hashed(KEY), **limits}]}


def clouds(upstream: Upstream) -> list[dict[str, object]]:
    return [{"id": "cloud-1", "url": upstream.url, "models": [{"id": MODEL, "context_tokens": 8192}]}]


async def test_headers_say_how_the_key_stands_and_the_last_place_is_the_last(
    start_router: StartRouter, cloud: Upstream
) -> None:
    router = await start_router(clouds=clouds(cloud), **limited(requests_per_minute=3, tokens_per_minute=5_000))
    for left in (2, 1, 0):
        async with router.ask(headers=HEADERS, max_tokens=16) as response:
            assert response.status == 200
            assert response.headers["x-ratelimit-limit-requests"] == "3"
            assert response.headers["x-ratelimit-remaining-requests"] == str(left)
            assert 59 < float(response.headers["x-ratelimit-reset-requests"].removesuffix("s")) <= 61
            assert response.headers["x-ratelimit-limit-tokens"] == "5000"
            assert 0 < int(response.headers["x-ratelimit-remaining-tokens"]) < 5_000
    sent = len(cloud.exchanges)
    async with router.ask(headers=HEADERS) as response:
        assert response.status == 429
        error = (await response.json())["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert 58 <= int(response.headers["Retry-After"]) <= 61
        assert response.headers["x-ratelimit-remaining-requests"] == "0"
        assert KEY not in str(error)
    assert len(cloud.exchanges) == sent, "a refused request reaches no backend"
    records = await router.records(4)
    assert records[-1]["code"] == "rate_limit_exceeded" and records[-1]["attempts"] == []


async def test_openais_client_sees_its_own_error(start_router: StartRouter, cloud: Upstream) -> None:
    router = await start_router(clouds=clouds(cloud), **limited(requests_per_minute=1))
    async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key=KEY, max_retries=0) as client:
        messages = [{"role": "user", "content": "hi"}]
        raw = await client.chat.completions.with_raw_response.create(model=MODEL, messages=messages)  # type: ignore[arg-type]
        assert raw.headers["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(model=MODEL, messages=messages)  # type: ignore[arg-type]
        assert int(refused.value.response.headers["retry-after"]) > 0


async def test_a_request_larger_than_a_minute_is_the_callers_fault(start_router: StartRouter, cloud: Upstream) -> None:
    router = await start_router(clouds=clouds(cloud), **limited(tokens_per_minute=100))
    async with router.ask(headers=HEADERS, max_tokens=500) as response:
        assert response.status == 400
        error = (await response.json())["error"]
        assert (error["code"], error["param"]) == ("tokens_over_limit", "max_tokens")
        assert "100" in error["message"]


async def test_tokens_are_settled_by_what_was_generated(start_router: StartRouter, cloud: Upstream) -> None:
    router = await start_router(clouds=clouds(cloud), **limited(tokens_per_minute=1_000))
    for _ in range(3):  # 900 each would not fit; what is generated does
        async with router.ask(headers=HEADERS, max_tokens=900) as response:
            assert response.status == 200, await response.text()
            await response.read()


@pytest.mark.parametrize("stream", [False, True])
async def test_rl_01_places_come_back_after_faults_and_departures(
    start_router: StartRouter, cloud: Upstream, stream: bool
) -> None:
    """Upstream timeouts, failures and clients that leave: with two places, two requests are admitted after each."""
    timeouts = {"first_token_s": 0.2, "answer_s": 0.2}
    router = await start_router(clouds=clouds(cloud), timeouts=timeouts, **limited(concurrent=2))
    for _ in range(2):
        cloud.script(answers.silence())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), router.ask(headers=HEADERS, stream=stream):
                pass
    for script in (answers.silence(), answers.failure(500)):
        cloud.script(script)
        async with router.ask(headers=HEADERS, stream=stream) as response:
            assert response.status >= 500
    await eventually(lambda: router.metric("isthmus_router_in_flight") == 0)
    assert await asyncio.gather(*(_status(router, stream) for _ in range(2))) == [200, 200]


async def _status(router: RunningRouter, stream: bool) -> int:
    async with router.ask(headers=HEADERS, stream=stream) as response:
        await response.read()
        return int(response.status)


@pytest.mark.redis
async def test_routers_on_one_redis_count_together(
    start_router: StartRouter, cloud: Upstream, redis_server: RedisServer
) -> None:
    state = {"kind": "redis", "url": redis_server.url}
    shared = {"clouds": clouds(cloud), "state": state, **limited(requests_per_minute=11)}
    routers = [await start_router(**shared) for _ in range(2)]
    # In turn: thirty at once on a busy machine take longer than Redis is given, and then each grants its share.
    statuses = [await _status(routers[n % 2], stream=False) for n in range(15)]
    assert statuses == [200] * 11 + [429] * 4


@pytest.mark.redis
async def test_a_key_made_for_one_router_works_at_all_and_a_revoked_one_at_none(
    start_router: StartRouter, cloud: Upstream, redis_server: RedisServer, tmp_path: Path
) -> None:
    """The command writes where its own router keeps its copy; the others agree over Redis."""
    state = {"kind": "redis", "url": redis_server.url}
    settings = [
        {"clouds": clouds(cloud), "state": state, "keys_file": tmp_path / f"router-{n}" / "keys.json"} for n in range(2)
    ]
    routers = [await start_router(**each) for each in settings]
    at = RouterSettings(port=0, **settings[0])  # type: ignore[arg-type]
    made = await asyncio.to_thread(create, at, "app", (Scope.INFERENCE,), KeyLimits(requests_per_minute=100), None)
    bearer = {"Authorization": f"Bearer {made['key']}"}
    for router in routers:
        await _becomes(router, bearer, 200)
        await _becomes(router, {}, 401)
    assert made["key"] not in settings[0]["keys_file"].read_text()  # type: ignore[attr-defined]
    await asyncio.to_thread(revoke, at, "app")
    for router in routers:
        await _becomes(router, bearer, 401)
        await _becomes(router, {}, 401)


async def test_keys_work_within_a_second_and_a_router_whose_last_key_went_stays_closed(
    start_router: StartRouter, cloud: Upstream, tmp_path: Path
) -> None:
    settings = {"clouds": clouds(cloud), "keys_file": tmp_path / "keys.json"}
    router = await start_router(**settings)
    at = RouterSettings(port=0, **settings)  # type: ignore[arg-type]
    assert await _answer(router, {}) == 200, "on loopback, no key is asked for until there is one"
    made = await asyncio.to_thread(create, at, "app", (Scope.INFERENCE,), KeyLimits(), 1)
    bearer = {"Authorization": f"Bearer {made['key']}"}
    await _becomes(router, {}, 401)
    assert await _answer(router, bearer) == 200
    with pytest.raises(InvalidRequest):
        await asyncio.to_thread(create, at, "app", (Scope.INFERENCE,), KeyLimits(), None)
    await asyncio.to_thread(revoke, at, made["id"])
    await _becomes(router, bearer, 401)
    assert await _answer(router, {}) == 401
    with pytest.raises(NotFound):
        await asyncio.to_thread(revoke, at, "app")
    [row] = (await asyncio.to_thread(listed, at))["keys"]
    assert (row["state"], row["source"]) == ("revoked", "register")
    assert made["key"] not in str(row)


async def _answer(router: RunningRouter, headers: dict[str, str]) -> int:
    async with router.ask(headers=headers) as response:
        return int(response.status)


async def _becomes(router: RunningRouter, headers: dict[str, str], status: int) -> None:
    async with asyncio.timeout(10):
        while await _answer(router, headers) != status:
            await asyncio.sleep(0.05)
