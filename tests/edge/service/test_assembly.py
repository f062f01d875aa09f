"""The engine's events as a client's stream and as one whole answer: tools, choices, usage, log-probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from edge.service.assembly import Assembly
from edge.service.chunks import ChunkStream
from edge.service.translation import EngineRequest, translate
from shared.errors import InvalidRequest, StreamBroken
from shared.openai.facts import Endpoint
from tests.edge.service.fakes import CLOSING, DONE, FACTS, MODEL, OPENING, chunk, event, progress


def _request(**fields: Any) -> EngineRequest:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}
    return translate(Endpoint.CHAT, body, replace(FACTS, slots=2))


def _text_request(**fields: Any) -> EngineRequest:
    return translate(Endpoint.COMPLETIONS, {"model": MODEL, "prompt": "hi", **fields}, replace(FACTS, slots=2))


def _whole(request: EngineRequest, events: list[bytes]) -> dict[str, Any]:
    assembly = Assembly(request)
    for data in events:
        assembly.feed(data)
    answer: dict[str, Any] = orjson.loads(assembly.answer())
    return answer


def _streamed(request: EngineRequest, events: list[bytes]) -> list[bytes]:
    chunks = ChunkStream(request)
    return [out for data in events for out in chunks.feed(data)]


def _call(index: int, arguments: str, **head: str) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": head["name"]} if "name" in head else {})
    call: dict[str, Any] = {"index": index, "function": function}
    return {"tool_calls": [call | ({"id": head["id"], "type": "function"} if "id" in head else {})]}


def test_tool_calls_are_put_together() -> None:
    events = [
        OPENING,
        chunk(_call(0, "", id="a", name="get")),
        chunk(_call(0, '{"x":')),
        chunk(_call(1, '{"y":2}', id="b", name="put")),
        chunk(_call(0, "1}")),
        chunk({}, finish="tool_calls"),
        CLOSING,
        DONE,
    ]
    choice = _whole(_request(), events)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "get", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "put", "arguments": '{"y":2}'}},
    ]
    assert _streamed(_request(), events)[1] == events[1]


def test_choices_are_kept_apart_and_share_one_usage() -> None:
    closing = {"choices": [], "id": "c", "usage": {"completion_tokens": 2, "prompt_tokens": 9}, "timings": {}}
    events = [
        chunk({"content": "b"}, index=1),
        chunk({"content": "a"}, index=0),
        chunk({}, index=1, finish="stop"),
        event(closing),
        chunk({}, index=0, finish="length"),
        event(closing),
        DONE,
    ]
    request = _request(n=2, stream=True, stream_options={"include_usage": True})
    answer = _whole(request, events)
    assert [c["message"]["content"] for c in answer["choices"]] == ["a", "b"]
    assert [c["finish_reason"] for c in answer["choices"]] == ["length", "stop"]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (9, 4)
    streamed = _streamed(request, events)
    assert sum(b'"usage"' in data for data in streamed) == 1
    assert b'"completion_tokens":4' in streamed[-2]


def test_several_prompts_add_up() -> None:
    def closing(index: int) -> bytes:
        choice = {"text": "", "index": index, "finish_reason": "length"}
        return event({"choices": [choice], "usage": {"completion_tokens": 2, "prompt_tokens": 5}, "timings": {}})

    text = [event({"choices": [{"text": letter, "index": i, "finish_reason": None}]}) for i, letter in enumerate("ab")]
    answer = _whole(_text_request(prompt=["x", "y"]), [*text, closing(0), closing(1), DONE])
    assert [choice["text"] for choice in answer["choices"]] == ["a", "b"]
    assert answer["object"] == "text_completion"
    assert answer["usage"]["prompt_tokens"] == 10


@pytest.mark.parametrize("events", [[OPENING, DONE], [OPENING, chunk({"content": "x"}), CLOSING, DONE], [DONE]])
def test_a_finish_reason_is_never_invented(events: list[bytes]) -> None:
    """SSE-05"""
    with pytest.raises(StreamBroken):
        _whole(_request(), events)
    with pytest.raises(StreamBroken):
        _streamed(_request(), events)


def test_progress_and_pings_are_dropped_but_not_text_that_looks_like_them() -> None:
    tricky = chunk({"content": '"prompt_progress":{} "timings":{}'})
    assert _streamed(_request(), [progress(1), b": ping\n\n", tricky]) == [tricky]


def test_an_error_event_is_the_engines_error() -> None:
    error = b'data: {"error":{"code":400,"message":"bad input","type":"invalid_request_error"}}\n\n'
    with pytest.raises(InvalidRequest):
        _streamed(_request(), [OPENING, error])
    with pytest.raises(InvalidRequest):
        _whole(_request(), [OPENING, error])


def _entry(token: str, *others: str) -> dict[str, Any]:
    def one(spelling: str) -> dict[str, Any]:
        return {"id": 7, "token": spelling, "bytes": list(spelling.encode()), "logprob": -0.5}

    return {**one(token), "top_logprobs": [one(spelling) for spelling in (token, *others)]}


def _with_logprobs(*entries: dict[str, Any]) -> bytes:
    text = "".join(entry["token"] for entry in entries)
    choice = {"finish_reason": None, "index": 0, "delta": {"content": text}, "logprobs": {"content": list(entries)}}
    return event({"choices": [choice], "id": "c"})


def test_chat_logprobs_hold_what_was_asked_for() -> None:
    events = [_with_logprobs(_entry("a", "b", "c")), _with_logprobs(_entry("d")), chunk({}, finish="stop"), DONE]
    entries = _whole(_request(logprobs=True, top_logprobs=2), events)["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["a", "d"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [2, 1]
    assert all("id" not in entry for entry in entries)
    bare = _streamed(_request(logprobs=True), events)[0]
    assert orjson.loads(bare[6:])["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


def test_legacy_logprobs_are_columns() -> None:
    def text(*entries: dict[str, Any]) -> bytes:
        spelled = "".join(entry["token"] for entry in entries)
        return event(
            {"choices": [{"text": spelled, "index": 0, "finish_reason": None, "logprobs": {"content": entries}}]}
        )

    end = event({"choices": [{"text": "", "index": 0, "finish_reason": "stop", "logprobs": None}]})
    answer = _whole(_text_request(logprobs=1), [text(_entry(" Pa", "x")), text(_entry("ris")), end, DONE])
    assert answer["choices"][0]["logprobs"] == {
        "tokens": [" Pa", "ris"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{" Pa": -0.5}, {"ris": -0.5}],
        "text_offset": [0, 3],
    }
