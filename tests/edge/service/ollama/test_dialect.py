"""Ollama's bodies in OpenAI's words: defaults, options, formats, conversations with calls, and what is refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from edge.service.dialect import Asked
from edge.service.ollama.dialect import Chat, Generate
from shared.clock import SystemClock
from shared.errors import InvalidRequest
from shared.openai.facts import Endpoint
from shared.openai.validation import validate

HELLO = [{"role": "user", "content": "hello"}]


def _chat(**fields: Any) -> Asked:
    return Chat(SystemClock()).read({"model": "m", "messages": HELLO, **fields})


def _generate(**fields: Any) -> Asked:
    return Generate(SystemClock()).read({"model": "m", "prompt": "hello", **fields})


def _refused(asked: Any, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        validated = asked(**fields)
        validate(validated.endpoint, validated.body)
    return caught.value


def test_ollamas_defaults_are_its_own_and_a_stream_is_one() -> None:
    body = _chat().body
    assert {name: body[name] for name in ("temperature", "top_k", "top_p", "stream")} == {
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.9,
        "stream": True,
    }
    assert "stream" not in _chat(stream=False).body
    assert _chat(stream=None).body["stream"] is True


def test_options_become_ours() -> None:
    options = {
        "temperature": 0,
        "top_k": 5,
        "top_p": 0.5,
        "min_p": 0.1,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "seed": 7,
        "num_predict": 12.0,
        "stop": ["a", "b"],
        "num_ctx": 4096,
        "num_gpu": 0,
        "use_mmap": True,
        "no_such_option": "left alone",
    }
    body = _chat(options=options, stream=False).body
    assert body == {
        "model": "m",
        "messages": HELLO,
        "logprobs": None,
        "top_logprobs": None,
        "temperature": 0,
        "top_k": 5,
        "top_p": 0.5,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "seed": 7,
        "max_tokens": 12,
        "stop": ["a", "b"],
    }
    validate(Endpoint.CHAT, body)


@pytest.mark.parametrize("num_predict", [-1, -2, None])
def test_no_limit_is_none(num_predict: int | None) -> None:
    assert "max_tokens" not in _chat(options={"num_predict": num_predict, "seed": -1}).body
    assert "seed" not in _chat(options={"seed": -1}).body
    assert _generate(raw=True, options={"num_predict": num_predict}).body["max_tokens"] > 10**6


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", "warm"),
        ("temperature", True),
        ("top_k", 1.5),
        ("stop", "END"),
        ("stop", [1]),
        ("num_predict", 0),
        ("num_predict", -3),
        ("num_predict", 2**31),
        ("num_predict", "all"),
        ("num_ctx", 2**40),
        ("num_ctx", [1]),
        ("use_mmap", "yes"),
        ("seed", 1.5),
        ("repeat_last_n", -7),
    ],
)
def test_an_option_of_the_wrong_kind_is_named(option: str, value: Any) -> None:
    for asked in (_chat, _generate):
        error = _refused(asked, options={option: value})
        assert (error.param or "").split("[")[0] == f"options.{option}"


@pytest.mark.parametrize("window", [-1, 0, 16, 64, None])
def test_penalties_look_back_as_far_as_the_caller_says(window: int | None) -> None:
    asked = _chat(options={"repeat_last_n": window, "repeat_penalty": 1.2})
    assert asked.penalty_window_tokens == window
    assert "repeat_last_n" not in asked.body, "it is no field of the API that a body is checked as"


def test_formats() -> None:
    assert "response_format" not in _chat(format="").body
    assert _chat(format="json").body["response_format"] == {"type": "json_object"}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for asked in (_chat(format=schema), _generate(format=schema)):
        assert asked.body["response_format"]["json_schema"]["schema"] == schema
        validate(asked.endpoint, asked.body)
    for bad in ("xml", 1, ["json"], True):
        assert _refused(_chat, format=bad).param == "format"
    assert _refused(_chat, format={"type": "no such type"}).param == "response_format"
    assert _refused(_generate, format="json", raw=True).param == "format"


@pytest.mark.parametrize("keep_alive", ["5m", "1h30m", "-1m", "0", "300", 0, -1, 5.5, None])
def test_keep_alive_is_taken(keep_alive: Any) -> None:
    assert _chat(keep_alive=keep_alive) == _chat()


@pytest.mark.parametrize("keep_alive", ["forever", "5 m", "m", "", [], {}, True])
def test_a_keep_alive_that_is_no_duration_is_refused(keep_alive: Any) -> None:
    assert _refused(_chat, keep_alive=keep_alive).param == "keep_alive"


def test_generate_is_a_chat_of_one_turn_unless_raw() -> None:
    asked = _generate(system="Be brief.")
    assert asked.endpoint is Endpoint.CHAT
    assert asked.body["messages"] == [{"role": "system", "content": "Be brief."}, *HELLO]
    raw = _generate(raw=True, logprobs=True, top_logprobs=3)
    assert (raw.endpoint, raw.body["prompt"], raw.body["logprobs"]) == (Endpoint.COMPLETIONS, "hello", 3)
    validate(raw.endpoint, raw.body)


@pytest.mark.parametrize(
    ("asked", "fields", "param"),
    [
        (_chat, {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images"),
        (_generate, {"images": ["aGk="]}, "images"),
        (_generate, {"suffix": "end"}, "suffix"),
        (_generate, {"template": "{{ .Prompt }}"}, "template"),
        (_generate, {"context": [1, 2, 3]}, "context"),
        (_generate, {"raw": True, "system": "x"}, "system"),
        (_chat, {"think": True}, "think"),
        (_chat, {"think": "high"}, "think"),
        (_chat, {"think": "hard"}, "think"),
        (_chat, {"top_logprobs": 21}, "top_logprobs"),
        (_chat, {"stream": "no"}, "stream"),
        (_chat, {"messages": "hello"}, "messages"),
        (_chat, {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        (_chat, {"messages": [{"content": "x"}]}, "messages[0].role"),
        (_chat, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}, "messages[0].content"),
        (_chat, {"messages": [{"role": "tool", "content": "7"}]}, "messages[0].tool_name"),
        (_chat, {"tools": {"type": "function"}}, "tools"),
        (_chat, {"tools": [{"type": "function", "function": {"name": "no name!"}}]}, "tools[0].function.name"),
        (_chat, {"model": ""}, "model"),
        (_chat, {"model": None}, "model"),
        (_chat, {"model": "a b"}, "model"),
        (_generate, {"prompt": 7}, "prompt"),
        (_generate, {"options": []}, "options"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(asked: Any, fields: dict[str, Any], param: str) -> None:
    assert _refused(asked, **fields).param == param


def test_neutral_values_of_what_is_not_supported_pass() -> None:
    _chat(think=False, tools=[], truncate=True, shift=False)
    _generate(think=False, images=[], suffix="", template="", context=[], system="", raw=False)


def test_a_conversation_with_calls_gets_the_ids_that_ollama_lacks() -> None:
    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": arguments}}

    messages = [
        *HELLO,
        {"role": "assistant", "tool_calls": [call("add", a=1), call("time"), call("add", a=2)]},
        {"role": "tool", "content": "12:00", "tool_name": "time"},
        {"role": "tool", "content": "one", "tool_name": "add"},
        {"role": "tool", "content": "two"},
        {"role": "Assistant", "content": "done", "thinking": "hm"},
    ]
    body = _chat(messages=messages).body
    validate(Endpoint.CHAT, body)
    ids = [each["id"] for each in body["messages"][1]["tool_calls"]]
    assert len(set(ids)) == 3
    assert [message["tool_call_id"] for message in body["messages"][2:5]] == [ids[1], ids[0], ids[2]]
    assert orjson.loads(body["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"a": 1}
    assert body["messages"][5] == {"role": "assistant", "content": "done"}


def test_ids_that_a_caller_gives_are_kept() -> None:
    call = {"id": "c1", "function": {"name": "add", "arguments": {}}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    body = _chat(messages=[*HELLO, said, {"role": "tool", "content": "3", "tool_call_id": "c1"}]).body
    validate(Endpoint.CHAT, body)
    unknown = [*HELLO, said, {"role": "tool", "content": "3", "tool_call_id": "c2"}]
    assert _refused(_chat, messages=unknown).param == "messages[2].tool_call_id"


def test_who_asks_for_no_text_is_told_that_the_model_is_loaded() -> None:
    for asked in (_chat(messages=[]), _chat(messages=None, keep_alive=0), _generate(prompt=""), _generate(prompt=None)):
        assert asked.at_once is not None
        told = orjson.loads(asked.at_once)
        assert (told["model"], told["done"], told["done_reason"]) == ("m", True, "load")


def test_the_default_tag_stands_for_the_model() -> None:
    assert _chat(model="m:latest").body["model"] == "m"
    assert _chat(model="m:tone").body["model"] == "m:tone"
