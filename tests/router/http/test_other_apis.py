"""Embeddings, responses and messages go the same way as chat: scanned, decided, recorded, passed on byte for byte."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from shared.fleet import ServedModel
from shared.keys import Scope, hashed
from shared.testing import answers
from shared.testing.answers import MODEL, Answer, Write
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, PUBLIC_TEXT, StartRouter

EMBEDDINGS, RESPONSES, MESSAGES = "/v1/embeddings", "/v1/responses", "/v1/messages"


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


RESPONSE_EVENTS = (
    _event("response.created", response={"id": "resp_1", "status": "in_progress"}),
    _event("response.output_text.delta", delta="杭州🦀"),
    _event("response.output_text.delta", delta=" ok"),
    _event("response.completed", response={"id": "resp_1", "usage": {"output_tokens": 2}}),
)
MESSAGE_EVENTS = (
    _event("message_start", message={"id": "msg_1", "usage": {"input_tokens": 3}}),
    _event("ping"),
    _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    _event("content_block_delta", index=0, delta={"type": "text_delta", "text": "杭州🦀"}),
    _event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
    _event("message_stop"),
)
WHOLE: dict[str, Any] = {
    EMBEDDINGS: {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 1e-07]}]},
    RESPONSES: {"id": "resp_1", "object": "response", "output": [{"type": "message", "content": []}]},
    MESSAGES: {"id": "msg_1", "type": "message", "content": [], "usage": {"output_tokens": 0}},
}


def body_of(path: str, text: str, **more: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": text}]
    fields: dict[str, dict[str, Any]] = {
        EMBEDDINGS: {"input": [text, "second"]},
        RESPONSES: {"input": turns, "instructions": "Be brief."},
        MESSAGES: {"messages": turns, "system": "Be brief.", "max_tokens": 8},
    }
    return {"model": MODEL, **fields[path], "x_own": {"b": [1.0, None]}, **more}


@pytest.mark.parametrize("path", [EMBEDDINGS, RESPONSES, MESSAGES])
async def test_a_whole_answer_passes_through(start_router: StartRouter, edge: Upstream, path: str) -> None:
    router = await start_router(aliases={"small": MODEL})
    await router.report(edge)
    answer = orjson.dumps(WHOLE[path])
    edge.script(Answer(headers=answers.JSON, writes=(Write(answer),)))
    sent = body_of(path, PUBLIC_TEXT, model="small")
    async with router.send(orjson.dumps(sent), path=path) as response:
        assert response.status == 200, await response.text()
        assert await response.read() == answer
        assert response.headers["x-isthmus-backend"] == "edge-1"
    [exchange] = edge.exchanges
    assert exchange.path == path
    assert orjson.loads(exchange.body) == {**sent, "model": MODEL}
    [record] = await router.records(1)
    assert record["endpoint"] == path and record["outcome"] == "ok"


@pytest.mark.parametrize("text", [PUBLIC_TEXT, PERSONAL_TEXT])
async def test_anthropics_clients_send_their_key_in_a_header_of_their_own(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """AU-01: the same privacy, and the key goes neither on nor into records and logs."""
    key, other = "isk-CANARY-one", "isk-CANARY-two"
    named = [{"name": name, "sha256": hashed(each), "scopes": scopes} for name, each, scopes in named_keys(key, other)]
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], keys=named, policy={"mode": "only_cloud"})
    cloud.default = lambda _: Answer(headers=answers.JSON, writes=(Write(orjson.dumps(WHOLE[MESSAGES])),))
    raw = orjson.dumps(body_of(MESSAGES, text))
    bearer = {"Authorization": f"Bearer {key}"}
    allowed = 200 if text == PUBLIC_TEXT else 503
    for headers, status in (
        ({"x-api-key": key}, allowed),
        ({"X-Api-Key": key, **bearer}, allowed),
        ({"x-api-key": other}, 403),
        ({"x-api-key": other, **bearer}, 401),
        ({"x-api-key": "isk-CANARY"}, 401),
        ({}, 401),
    ):
        async with router.send(raw, path=MESSAGES, headers=headers) as response:
            assert (response.status, "CANARY" in await response.text()) == (status, False), headers
    async with router.send(raw, headers={"x-api-key": key}) as response:
        assert response.status == 401, "chat is no route of theirs"
    assert [any("CANARY" in value for value in e.headers.values()) for e in cloud.exchanges] == [False] * (
        2 if text == PUBLIC_TEXT else 0
    )
    assert "CANARY" not in str(await router.records(7)) and "CANARY" not in str(capsys.readouterr())


def named_keys(key: str, other: str) -> list[tuple[str, str, list[Scope]]]:
    return [("app", key, [Scope.INFERENCE]), ("reports", other, [Scope.FLEET_REPORT])]


@pytest.mark.parametrize("path,events", [(RESPONSES, RESPONSE_EVENTS), (MESSAGES, MESSAGE_EVENTS)])
async def test_a_stream_passes_through(
    start_router: StartRouter, edge: Upstream, path: str, events: tuple[bytes, ...]
) -> None:
    """SSE-01 for the other APIs."""
    router = await start_router()
    await router.report(edge)
    whole = Answer(headers=answers.EVENT_STREAM, writes=tuple(Write(each) for each in events))
    edge.script(answers.byte_by_byte(whole))
    async with router.send(orjson.dumps(body_of(path, PUBLIC_TEXT, stream=True)), path=path) as response:
        assert await response.read() == b"".join(events)
    [record] = await router.records(1)
    assert record["outcome"] == "ok" and record["attempts"][0]["completion_tokens"] == 2


@pytest.mark.parametrize("path,events", [(RESPONSES, RESPONSE_EVENTS), (MESSAGES, MESSAGE_EVENTS)])
async def test_a_broken_stream_ends_in_the_words_of_its_api(
    start_router: StartRouter, edge: Upstream, path: str, events: tuple[bytes, ...]
) -> None:
    """SSE-05: one error event, typed as the API types it, and no invented end."""
    router = await start_router()
    await router.report(edge)
    edge.script(Answer(headers=answers.EVENT_STREAM, writes=tuple(Write(each) for each in events[:-2])))
    async with router.send(orjson.dumps(body_of(path, PUBLIC_TEXT, stream=True)), path=path) as response:
        received = await response.read()
    tail = received.removeprefix(b"".join(events[:-2]))
    assert tail.startswith(b"event: error\ndata: ") and tail.count(b"data:") == 1
    assert orjson.loads(tail.split(b"data: ")[1])["type"] == "error"
    [record] = await router.records(1)
    assert record["outcome"] == "broken"


@pytest.mark.parametrize("path", [EMBEDDINGS, RESPONSES, MESSAGES])
async def test_what_is_personal_stays_on_the_edge(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, path: str
) -> None:
    """The same hard filter, also where policy would mask: answers of these APIs could not be restored."""
    actions = {"public": "any", "personal": "mask", "secret": "edge_only", "unknown": "edge_only"}
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"mode": "prefer_cloud", "actions": actions}
    )
    await router.report(edge)
    edge.script(Answer(headers=answers.JSON, writes=(Write(orjson.dumps(WHOLE[path])),)))
    async with router.send(orjson.dumps(body_of(path, PERSONAL_TEXT)), path=path) as response:
        assert response.status == 200 and response.headers["x-isthmus-tier"] == "edge"
        assert response.headers["x-isthmus-class"] == "personal"
    assert not cloud.exchanges


@pytest.mark.parametrize("path,turns", [(RESPONSES, "input"), (MESSAGES, "messages")])
async def test_a_number_cut_over_two_turns_is_one_number(
    start_router: StartRouter, edge: Upstream, path: str, turns: str
) -> None:
    router = await start_router()
    await router.report(edge)
    cut = [{"role": "user", "content": "card 4111 1111"}, {"role": "user", "content": "1111 1111"}]
    edge.script(Answer(headers=answers.JSON, writes=(Write(orjson.dumps(WHOLE[path])),)))
    async with router.send(orjson.dumps(body_of(path, "", **{turns: cut})), path=path) as response:
        assert response.headers["x-isthmus-class"] == "personal"


async def test_an_api_that_one_backend_lacks_goes_to_another(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    edge.script(answers.failure(404, "unknown_route"))
    cloud.script(Answer(headers=answers.JSON, writes=(Write(orjson.dumps(WHOLE[RESPONSES])),)))
    async with router.send(orjson.dumps(body_of(RESPONSES, PUBLIC_TEXT)), path=RESPONSES) as response:
        assert response.status == 200 and response.headers["x-isthmus-tier"] == "cloud"


@pytest.mark.parametrize(
    "path,wrong,param",
    [
        (EMBEDDINGS, {"input": []}, "input"),
        (RESPONSES, {"input": ""}, "input"),
        (RESPONSES, {"max_output_tokens": 0}, "max_output_tokens"),
        (RESPONSES, {"background": True}, "background"),
        (MESSAGES, {"max_tokens": None}, "max_tokens"),
        (MESSAGES, {"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        (MESSAGES, {"temperature": 1.5}, "temperature"),
    ],
)
async def test_faults_name_their_field(
    start_router: StartRouter, edge: Upstream, path: str, wrong: dict[str, Any], param: str
) -> None:
    router = await start_router()
    await router.report(edge)
    async with router.send(orjson.dumps(body_of(path, PUBLIC_TEXT, **wrong)), path=path) as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == param
    assert not edge.exchanges


async def test_answers_that_cannot_be_scanned_are_refused_where_they_must_be(
    start_router: StartRouter, edge: Upstream
) -> None:
    router = await start_router(scan={"answers": "all"})
    await router.report(edge)
    async with router.send(orjson.dumps(body_of(RESPONSES, PUBLIC_TEXT)), path=RESPONSES) as response:
        assert response.status == 403 and (await response.json())["error"]["code"] == "answers_unscannable"
    assert not edge.exchanges


@pytest.mark.parametrize(
    "fields,param",
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
    ],
)
async def test_an_unsupported_feature_names_its_field(
    start_router: StartRouter, edge: Upstream, fields: dict[str, Any], param: str
) -> None:
    router = await start_router()
    await router.report(edge, models=(ServedModel(model_id=MODEL, features=("continuation",)),))
    async with router.ask(**fields) as response:
        error = (await response.json())["error"]
    assert response.status == 400 and error["code"] == "unsupported_feature" and error["param"] == param


@pytest.mark.parametrize("given", ["auto", "last_turns", "", True, {"type": "auto"}])
async def test_a_prompt_that_may_be_cut_is_refused(start_router: StartRouter, edge: Upstream, given: Any) -> None:
    """`truncation: "auto"` would let a backend drop turns unseen; `disabled` and null are what happens anyway."""
    router = await start_router()
    await router.report(edge)
    async with router.send(orjson.dumps(body_of(RESPONSES, PUBLIC_TEXT, truncation=given)), path=RESPONSES) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, "truncation")
    assert not edge.exchanges
    for allowed in ("disabled", None):
        edge.script(Answer(headers=answers.JSON, writes=(Write(orjson.dumps(WHOLE[RESPONSES])),)))
        sent = body_of(RESPONSES, PUBLIC_TEXT, truncation=allowed)
        async with router.send(orjson.dumps(sent), path=RESPONSES) as response:
            assert response.status == 200
        assert orjson.loads(edge.exchanges[-1].body) == sent
