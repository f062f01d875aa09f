"""The recorder forwards every byte, counts canaries wherever they hide, and plays a cloud's faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from loadtests.faults.stack import RecorderClient
from loadtests.recorder import Recorder
from loadtests.workload.canaries import marker_of
from shared.testing import answers
from shared.testing.answers import End
from shared.testing.upstream import Upstream

MARKER = marker_of(7, "run")


@dataclass
class Recorded:
    """A recorder before a scripted cloud."""

    upstream: Upstream
    http: aiohttp.ClientSession
    client: RecorderClient

    async def post(self, body: bytes, **headers: str) -> bytes:
        url = f"{self.client.url}/v1/chat/completions"
        async with self.http.post(url, data=body, headers=headers) as response:
            return await response.read()


@pytest.fixture
async def recorded() -> AsyncIterator[Recorded]:
    async with (
        Upstream() as upstream,
        TestServer(Recorder(upstream.url).application()) as server,
        aiohttp.ClientSession() as http,
    ):
        client = RecorderClient(http, str(server.make_url("")).rstrip("/"))
        await client.watch(MARKER)
        yield Recorded(upstream, http, client)


async def _tally(recorded: Recorded) -> dict[str, int]:
    tally = await recorded.client.tally()
    assert tally is not None
    return tally


async def test_bytes_pass_unchanged_in_both_directions(recorded: Recorded) -> None:
    answer = answers.stream("杭州", "🦀")
    recorded.upstream.script(answer)
    body = b'{"stream": true,  "messages": []}'
    assert await recorded.post(body, **{"X-Session-Id": "s"}) == answer.body
    assert recorded.upstream.exchanges[0].body == body
    assert recorded.upstream.exchanges[0].headers["x-session-id"] == "s"
    tally = await _tally(recorded)
    assert (tally["requests"], tally["request_bytes"], tally["leaked_bytes"]) == (1, len(body), 0)


async def test_canaries_are_counted_in_bodies_and_headers_and_a_new_watch_begins_at_none(recorded: Recorded) -> None:
    address = f"{MARKER.word}.00ff@example.com"
    await recorded.post(f'{{"a": "{address}"}}'.encode())
    assert (await _tally(recorded))["leaked_bytes"] == len(address)
    await recorded.post(b"{}", **{"X-Note": address})
    grouped = f"4{MARKER.digits}12345"
    await recorded.post(" ".join(grouped[at : at + 4] for at in range(0, 16, 4)).encode())
    tally = await _tally(recorded)
    assert tally["leaked_requests"] == 3
    assert tally["leaked_bytes"] >= 2 * len(address) + 15
    await recorded.client.watch(MARKER)
    assert (await _tally(recorded))["leaked_bytes"] == 0


async def test_a_cut_answer_stays_cut(recorded: Recorded) -> None:
    recorded.upstream.script(answers.broken_stream("a", end=End.RESET))
    with pytest.raises(aiohttp.ClientError):
        await recorded.post(b'{"stream": true}')


async def test_a_killed_cloud_cuts_connections_until_the_fault_ends(recorded: Recorded) -> None:
    await recorded.client.fault("killed", for_s=60)
    with pytest.raises(aiohttp.ClientError):
        await recorded.post(b"{}")
    await recorded.client.fault("none", for_s=0)
    assert await recorded.post(b"{}")
    assert len(recorded.upstream.exchanges) == 1


async def test_a_cloud_at_zero_says_so_until_a_request_has_woken_it(recorded: Recorded) -> None:
    async def state() -> str:
        async with recorded.http.get(f"{recorded.client.url}/ops/capacity") as response:
            return str((await response.json())["models"][0]["state"])

    assert await state() == "ready"
    async with recorded.http.post(
        f"{recorded.client.url}/recorder/v1/fault", json={"kind": "cold", "for_s": 60, "start_s": 0.05}
    ) as response:
        assert response.status == 204
    assert await state() == "scaled_to_zero"
    assert await recorded.post(b"{}")
    assert await state() == "ready"


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("watch", {"word": "UPPER", "digits": "1234567890"}),
        ("watch", {}),
        ("fault", {"kind": "earthquake"}),
        ("fault", {"kind": "cold", "for_s": -1}),
    ],
)
async def test_what_the_recorder_does_not_understand_changes_nothing(
    recorded: Recorded, route: str, body: dict[str, object]
) -> None:
    async with recorded.http.post(f"{recorded.client.url}/recorder/v1/{route}", json=body) as response:
        assert response.status == 400
    assert await recorded.post(b"{}")


async def test_a_cloud_that_refuses_connections_looks_like_one_through_the_recorder(recorded: Recorded) -> None:
    await recorded.upstream.refuse()
    with pytest.raises(aiohttp.ClientError):
        await recorded.post(b"{}")
