"""Failover through the whole router: bounded, honest about quotas, blind to the faults of requests."""

from __future__ import annotations

import asyncio

import pytest

from shared.fleet import ServedModel
from shared.testing import answers
from shared.testing.answers import MODEL, Answer, End
from shared.testing.upstream import Exchange, Upstream
from tests.router.conftest import PERSONAL_TEXT, StartRouter, eventually

TOO_LONG = (
    b'{"object":"error","message":"This model\'s maximum context length is 2048 tokens. However, you requested 3010 '
    b'tokens (3000 in the messages, 10 in the completion). Please reduce.","type":"BadRequestError","code":400}'
)


def refused_as_too_long() -> Answer:
    return Answer(status=400, headers=answers.JSON, writes=(answers.Write(TOO_LONG),))


async def test_a_quota_is_shared_by_its_domain(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> None:
    """FO-03: one 429 rests every backend of the domain; others go on; the client is told how long."""
    async with Upstream() as elsewhere:
        router = await start_router(
            clouds=[
                {"id": "cloud-1", "url": cloud.url, "rate_domain": "acme"},
                {"id": "cloud-2", "url": edge.url, "rate_domain": "acme"},
            ],
            policy={"mode": "only_cloud"},
        )
        cloud.default = edge.default = lambda _: answers.failure(429, "rate_limit_exceeded", {"Retry-After": "3"})
        async with router.ask() as first:
            assert first.status == 429 and first.headers["Retry-After"] == "3"
        assert len(cloud.exchanges) + len(edge.exchanges) == 1, "the second backend shares the quota"

        async def one() -> tuple[int, int]:
            async with router.ask() as response:
                return response.status, int(response.headers["Retry-After"])

        answered = await asyncio.gather(*(one() for _ in range(20)))
        assert all(status == 429 and 1 <= wait_s <= 3 for status, wait_s in answered)
        assert len(cloud.exchanges) + len(edge.exchanges) == 1
        other = await start_router(
            clouds=[
                {"id": "cloud-1", "url": cloud.url, "rate_domain": "acme"},
                {"id": "cloud-3", "url": elsewhere.url, "rate_domain": "other"},
            ],
            policy={"mode": "only_cloud"},
        )
        for _ in range(3):
            async with other.ask() as response:
                assert response.status == 200
                assert response.headers["x-isthmus-backend"] == "cloud-3"


@pytest.mark.parametrize(
    ("status", "headers", "least_s", "then"),
    [
        (429, {"Retry-After": "2.4"}, 3, 429),
        (429, {"retry-after-ms": "2400"}, 3, 429),
        (529, {"Retry-After": "7"}, 7, 503),
    ],
)
async def test_fo_03_a_pause_is_heeded_in_whatever_form(
    start_router: StartRouter, cloud: Upstream, status: int, headers: dict[str, str], least_s: int, then: int
) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"mode": "only_cloud"})
    cloud.default = lambda _: answers.failure(status, "rate_limit_exceeded", headers)
    async with router.ask() as response:
        assert (response.status, response.headers["Retry-After"]) == (status, str(least_s))
    async with router.ask() as response:
        assert response.status == then
    assert len(cloud.exchanges) == 1


@pytest.mark.parametrize("status", [400, 429])
async def test_a_backends_word_that_no_wait_helps_goes_on_without_a_time_to_wait(
    start_router: StartRouter, cloud: Upstream, status: int
) -> None:
    """A quota that is spent for the month is 429 as one of the minute is, and only its sender can tell."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"mode": "only_cloud"})
    told = {"Retry-After": "7", "x-should-retry": "false"}
    cloud.default = lambda _: answers.failure(status, "insufficient_quota", told)
    async with router.ask() as response:
        assert (response.status, response.headers["x-should-retry"]) == (status, "false")
        assert "Retry-After" not in response.headers


async def test_fo_01_an_opening_that_counts_the_prompt_is_no_content(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """Engines asked for continuous usage put it into the role-only chunk too; a break behind that is failed over."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    opening = answers.chunk(role="assistant", content="").replace(
        b'"choices"', b'"usage":{"prompt_tokens":7,"completion_tokens":0,"total_tokens":7},"choices"'
    )
    edge.script(Answer(headers=answers.EVENT_STREAM, writes=(answers.Write(opening),), end=End.RESET))
    cloud.script(good := answers.stream("Pa", "ris"))
    async with router.ask(stream=True) as response:
        assert await response.read() == good.body
        assert response.headers["x-isthmus-backend"] == "cloud-1"


@pytest.mark.parametrize("stream", [False, True])
async def test_bad_requests_open_no_breaker(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, stream: bool
) -> None:
    """FO-05: 4xx passes through, is not tried elsewhere, and costs the backend nothing."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    edge.script(*[answers.failure(422, "bad_schema") for _ in range(20)])
    for _ in range(20):
        async with router.ask(stream=stream) as response:
            assert response.status == 422
            assert (await response.json())["error"]["code"] == "bad_schema"
    async with router.ask() as response:
        assert response.status == 200
        assert response.headers["x-isthmus-backend"] == "edge-1"
    assert not cloud.exchanges


async def test_a_failing_backend_is_left_alone(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    edge.default = lambda _: answers.failure(500)
    for _ in range(10):
        async with router.ask() as response:
            assert response.status == 200
    assert len(edge.exchanges) <= 4
    assert router.metric("isthmus_router_attempts_total", tier="edge", outcome="failed") == len(edge.exchanges)


async def test_a_refused_connection_marks_at_once_and_a_heartbeat_heals(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """FS-01: the first refused connection is enough; the backend returns when its reports do."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    await edge.refuse()
    for _ in range(3):
        async with router.ask() as response:
            assert response.headers["x-isthmus-tier"] == "cloud"
    records = await router.records(3)
    assert [len(r["attempts"]) for r in records] == [2, 1, 1]
    assert records[1]["decision"]["rejected"][0]["reason"] == "breaker_open"
    await edge.accept()
    await router.report(edge)
    async with router.ask() as response:
        assert response.headers["x-isthmus-backend"] == "edge-1"


async def test_retries_stay_within_the_budget(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> None:
    """A failing backend does not double the load on the others."""
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], retry={"budget_ratio": 0.0, "floor_per_10s": 2}
    )
    await router.report(edge)
    edge.default = lambda _: answers.failure(500)
    statuses = []
    for _ in range(3):
        async with router.ask() as response:
            statuses.append(response.status)
    assert statuses == [200, 200, 502]
    assert len(cloud.exchanges) == 2


async def test_a_request_that_is_too_long_goes_where_there_is_room(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """CX-01: the backend's own count decides; a larger one is tried, and the prompt is never cut."""
    async with Upstream() as roomy:
        router = await start_router()
        await router.report(edge, "edge-small")
        await router.report(roomy, "edge-large", models=(ServedModel(model_id=MODEL, context_tokens=8192),))
        edge.default = roomy.default = lambda _: refused_as_too_long()
        roomy.default = _asked_whole
        for stream in (False, True):
            async with router.ask(stream=stream) as response:
                assert response.status == 200
                assert response.headers["x-isthmus-backend"] == "edge-large"


def _asked_whole(exchange: Exchange) -> Answer:
    return answers.stream("ok") if b'"stream":true' in exchange.body else answers.completion("ok")


@pytest.mark.parametrize("code", ["unsupported_parameter", "unsupported_schema", "schema_too_complex"])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_agents_cannot_do_goes_to_a_cloud(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, code: str, stream: bool
) -> None:
    """A limit of devices is no fault of the request while a cloud may serve it; no other device is bothered, no retry
    is spent, and what privacy keeps on the edge is told what the device said."""
    async with Upstream() as neighbour:
        retry = {"budget_ratio": 0.0, "floor_per_10s": 0}
        router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], retry=retry)
        await router.report(edge)
        await router.report(neighbour, "edge-2")
        edge.default = neighbour.default = lambda _: answers.failure(400, code)
        cloud.default = _asked_whole
        async with router.ask(stream=stream) as response:
            assert (response.status, response.headers["x-isthmus-tier"]) == (200, "cloud")
        assert len(edge.exchanges) + len(neighbour.exchanges) == len(cloud.exchanges) == 1
        async with router.ask(PERSONAL_TEXT, stream=stream) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (400, code)
        assert len(cloud.exchanges) == 1
        assert "breaker" not in str(await router.records(2))


async def test_fo_05_what_a_cloud_does_not_support_is_passed_on(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """FO-05: the codes are those of agents; whatever 400 a cloud gives is the answer."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"mode": "prefer_cloud"})
    await router.report(edge)
    cloud.default = lambda _: answers.failure(400, "unsupported_parameter")
    async with router.ask() as response:
        assert (response.status, (await response.json())["error"]["code"]) == (400, "unsupported_parameter")
    assert edge.exchanges == []


async def test_too_long_for_all_is_400_with_both_numbers(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """CX-01: never 200 with a cut prompt; the numbers are kept and the engine's own words are not."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"mode": "only_cloud"})
    cloud.script(refused_as_too_long())
    async with router.ask(stream=True) as response:
        error = (await response.json())["error"]
    assert response.status == 400 and error["code"] == "context_length_exceeded"
    assert "2048" in error["message"] and "3010" in error["message"]
    assert "Please reduce" not in error["message"]


async def test_words_of_a_cloud_are_not_passed_on(start_router: StartRouter, cloud: Upstream) -> None:
    """Errors of a serving ingress quote classes, paths and request ids."""
    leak = (
        b'{"error":{"message":"Internal exception: ray.llm.Thing at /root/x.py (req 7)","type":"OpenAIHTTPException"}}'
    )
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    for status in (400, 404, 422, 500, 503):
        cloud.script(Answer(status=status, headers=answers.JSON, writes=(answers.Write(leak),)))
        async with router.ask(headers={"x-isthmus-route": "cloud"}) as response:
            body = await response.text()
        assert "ray" not in body and "OpenAIHTTPException" not in body
        assert response.status == (502 if status >= 500 else status)


@pytest.mark.parametrize(
    "answer", [answers.empty(), answers.hang_up(), answers.hang_up(End.CUT), answers.failure(500),
               Answer(headers=answers.JSON, writes=(answers.Write(b'{"error":{"message":"x"}}'),)),
               Answer(headers=answers.JSON, writes=(answers.Write(b'["no"]'),)),
               Answer(status=307, headers={"Location": "http://127.0.0.1:9/"})]
)  # fmt: skip
async def test_a_whole_answer_that_is_none_moves_on(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, answer: Answer
) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    edge.script(answer)
    async with router.ask() as response:
        assert response.status == 200 and response.headers["x-isthmus-tier"] == "cloud"
    assert len(edge.exchanges) == len(cloud.exchanges) == 1


async def test_slots_are_released_whatever_the_end(start_router: StartRouter, edge: Upstream) -> None:
    """RL-01: timeouts, departures and failures leave no request counted."""
    router = await start_router(timeouts={"first_token_s": 0.2, "answer_s": 0.2}, limits={"in_flight": 2})
    await router.report(edge)
    edge.script(answers.silence(), answers.silence(), answers.failure(500), answers.hang_up())
    for stream in (True, False, True, False):
        await router.report(edge)
        async with router.ask(stream=stream) as response:
            assert response.status >= 500
    edge.default = lambda _: answers.silence()
    await router.report(edge)  # a sign of life: the breaker lets one request through
    leaver = asyncio.create_task(router.ask().__aenter__())
    await edge.wait_exchanges(5)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    await eventually(lambda: router.in_flight() == 0 and router.metric("isthmus_router_in_flight") == 0)
    async with Upstream() as healthy:
        await router.report(healthy, "edge-2")
        answered = [router.ask(headers={"x-isthmus-route": "edge"}) for _ in range(2)]
        for asked in answered:
            async with asked as response:
                assert response.status == 200


async def test_a_backend_gets_no_more_than_its_limit(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """What is over the limit goes elsewhere, and is refused where there is nowhere else."""
    router = await start_router(
        edges=[{"id": "edge-1", "url": edge.url, "max_in_flight": 2}],
        clouds=[{"id": "cloud-1", "url": cloud.url, "max_in_flight": 1}],
    )
    await eventually(lambda: all(b.state == "ready" for b in router.router.directory.snapshot().backends))
    edge.default = cloud.default = lambda _: answers.silence()
    held = [asyncio.create_task(router.ask(stream=True).__aenter__()) for _ in range(3)]
    await edge.wait_exchanges(2)
    await cloud.wait_exchanges(1)
    async with router.ask(stream=True) as response:
        assert response.status == 503 and response.headers["Retry-After"] == "1"
        assert (await response.json())["error"]["code"] == "no_capacity"
    assert len(edge.exchanges) == 2 and len(cloud.exchanges) == 1
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    await eventually(lambda: router.in_flight() == 0)


async def test_a_frozen_backend_gets_no_new_requests(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """Its open stream stands still: the next request does not have to find that out for itself."""
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], outliers={"frozen_after_s": 0.3}, timeouts={"idle_s": 30}
    )
    await router.report(edge)
    edge.script(answers.broken_stream("a", end=End.STALL))
    async with router.ask(stream=True) as stalled:
        await stalled.content.readany()
        await eventually(lambda: router.router.directory.snapshot().backends[-1].breaker == "open")
        async with router.ask() as response:
            assert response.headers["x-isthmus-backend"] == "cloud-1"
    await eventually(lambda: router.in_flight() == 0)
    await router.report(edge)
    async with router.ask(headers={"x-isthmus-route": "edge"}) as response:
        assert response.headers["x-isthmus-backend"] == "edge-1"
