"""RV-01, RV-03, RV-05, RV-09: the first fault of a request is one 400 that names its field and echoes no value."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import InvalidRequest
from shared.openai.facts import Endpoint
from shared.openai.validation import validate

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def _refused(body: dict[str, Any], endpoint: Endpoint = Endpoint.CHAT) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        validate(endpoint, body)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    return caught.value


def _with(**fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(CHAT), **fields}


def _schema(schema: Any) -> dict[str, Any]:
    return _with(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "m", "messages": []}, "messages"),
        ({"model": "m"}, "messages"),
        (_with(messages=[{"role": "user", "content": None}]), "messages[0].content"),
        (_with(messages=[{"role": "assistant"}]), "messages[0].content"),
        (_with(messages=[{"role": "user"}]), "messages[0].content"),
        (_with(messages=[{"role": "user", "content": []}]), "messages[0].content"),
        (_with(messages=[{"role": "user", "content": 5}]), "messages[0].content"),
        (_with(messages=[CHAT["messages"][0], {"role": "system", "content": None}]), "messages[1].content"),
        (_with(messages=[{"role": "tool", "content": "x"}]), "messages[0].tool_call_id"),
        (_with(messages=[{"role": "wizard", "content": "x"}]), "messages[0].role"),
        (_with(messages=[{"content": "x"}]), "messages[0].role"),
        (_with(messages=[{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text"),
        (_with(messages=[{"role": "user", "content": [{"type": "hologram"}]}]), "messages[0].content[0].type"),
        (_with(messages=["hello"]), "messages[0]"),
        (_with(messages={}), "messages"),
        (_with(messages="hello"), "messages"),
        ({"messages": CHAT["messages"]}, "model"),
        (_with(model=""), "model"),
        (_with(model="a b"), "model"),
        (_with(model=7), "model"),
    ],
)
def test_rv_01_missing_or_null_content_names_its_field(body: dict[str, Any], param: str) -> None:
    assert _refused(body).param == param


def test_rv_01_an_assistant_that_calls_a_tool_needs_no_content() -> None:
    validate(
        Endpoint.CHAT,
        _with(
            messages=[
                *CHAT["messages"],
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "42"},
            ]
        ),
    )


@pytest.mark.parametrize(
    "before",
    [
        [],
        [{"role": "assistant", "content": "x"}],
        [{"role": "assistant", "tool_calls": [CALL | {"id": "c2"}]}],
        [{"role": "tool", "tool_call_id": "c2", "content": "1"}],
    ],
    ids=["no call", "a text", "another call", "a result"],
)
def test_ct_01_a_result_without_its_call_is_refused(before: list[dict[str, Any]]) -> None:
    result = {"role": "tool", "tool_call_id": "c1", "content": "42"}
    refused = _refused(_with(messages=[*CHAT["messages"], *before, result]))
    assert refused.param is not None
    assert refused.param.endswith(".tool_call_id")


@pytest.mark.parametrize(
    "bias",
    [
        {"AI": -100},
        {"999999999": 5},
        {"12": 1e9},
        {"12": -100.5},
        {"12": None},
        {"12": "5"},
        {"12": True},
        {"-1": 5},
        {"1.0": 5},
        {"012": 5},
        {" 12": 5},
        {"١٢": 5},
        [],
        "12",
        5,
        {str(i): 1 for i in range(1025)},
    ],
)
@pytest.mark.parametrize("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS])
def test_rv_03_a_malformed_logit_bias_is_refused_before_any_engine(bias: Any, endpoint: Endpoint) -> None:
    body = _with(logit_bias=bias) if endpoint is Endpoint.CHAT else {"model": "m", "prompt": "x", "logit_bias": bias}
    error = _refused(body, endpoint)
    assert error.param == "logit_bias"
    assert "AI" not in error.message


@pytest.mark.parametrize("bias", [{}, {"12": 100}, {"0": -100, "49151": 0.5}, None])
def test_rv_03_a_correct_logit_bias_passes(bias: Any) -> None:
    validate(Endpoint.CHAT, _with(logit_bias=bias))


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {
            "$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/b"}}}, "b": {"items": {"$ref": "#/$defs/a"}}},
            "$ref": "#/$defs/a",
        },
        {"$ref": "#/$defs/absent"},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"properties": {"b": {"$ref": "#/properties/a"}}}}},
        {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(40)} | {"d40": {}}, "$ref": "#/$defs/d0"},
        {"$ref": "file:///etc/hostname"},
        {"type": "string", "pattern": "(a+)+$"},
        {"type": "string", "pattern": "((ab)*c)*"},
        {"type": "string", "pattern": "(a*){20}"},
        {"type": "string", "pattern": "("},
        {"type": "string", "pattern": "a" * 300},
        {"enum": list(range(513))},
        {"type": "object", "properties": {f"p{i}": {} for i in range(257)}},
        {"type": "array", "items": {}, "maxItems": 10**6},
        {"type": "string", "minLength": 5000},
        {"description": "x" * 70_000},
        _deep(200),
        "a text",
        [],
        None,
    ],
    ids=lambda schema: str(schema)[:40],
)
def test_rv_05_a_broken_or_unbounded_schema_is_refused_at_once(schema: Any) -> None:
    began = time.monotonic()
    error = _refused(_schema(schema))
    assert error.param == "response_format"
    assert time.monotonic() - began < 2


def test_rv_05_references_that_fan_out_are_followed_once_each() -> None:
    """A schema of 2 KB whose expansion has 2 ** 14 parts is judged in its own size."""
    levels = 14
    schema: dict[str, Any] = {"$defs": {f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}
    for level in range(levels):
        below = {"$ref": f"#/$defs/d{level + 1}"}
        schema["$defs"][f"d{level}"] = {"type": "object", "properties": {"a": below, "b": below, "c": below}}
    began = time.monotonic()
    validate(Endpoint.CHAT, _schema(schema))
    assert time.monotonic() - began < 2


def test_rv_05_tool_schemas_have_the_same_bounds() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "string", "pattern": "(a+)+"}}}
    assert _refused(_with(tools=[tool])).param == "tools[0].function.parameters"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        {"$defs": {"a": {"type": "string"}}, "type": "array", "items": {"$ref": "#/$defs/a"}},
        {"type": "string", "pattern": "^[a-z]+(-[0-9]{2})?$"},
        {"type": "object", "properties": {"$ref": {"type": "string"}, "pattern": {"type": "string"}}},
        {},
    ],
    ids=lambda schema: str(schema)[:40],
)
def test_rv_05_a_sound_schema_passes(schema: dict[str, Any]) -> None:
    validate(Endpoint.CHAT, _schema(schema))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": "true"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"temperature": "0"}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 2**40}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 10**6}, "n"),
        ({"seed": 2**70}, "seed"),
        ({"stop": 5}, "stop"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [2**40]}, "stop_token_ids[0]"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"user": 5}, "user"),
    ],
    ids=str,
)
def test_rv_09_a_wrong_type_or_range_names_its_field(fields: dict[str, Any], param: str) -> None:
    assert _refused(_with(**fields)).param == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "m"}, "prompt"),
        ({"model": "m", "prompt": ""}, "prompt"),
        ({"model": "m", "prompt": []}, "prompt"),
        ({"model": "m", "prompt": {}}, "prompt"),
        ({"model": "m", "prompt": [2**40]}, "prompt[0]"),
        ({"model": "m", "prompt": [[1, -1]]}, "prompt[0][1]"),
        ({"model": "m", "prompt": "x", "logprobs": 6}, "logprobs"),
        ({"model": "m", "prompt": "x", "best_of": 0}, "best_of"),
    ],
    ids=str,
)
def test_legacy_completions_are_checked_alike(body: dict[str, Any], param: str) -> None:
    assert _refused(body, Endpoint.COMPLETIONS).param == param


def test_unknown_fields_pass_through() -> None:
    validate(Endpoint.CHAT, _with(mirostat=2, x_vendor={"a": [1]}))


_CANARY = "canary-5c1e-4111"


@pytest.mark.parametrize(
    "body",
    [
        _with(messages=[{"role": _CANARY, "content": "x"}]),
        _with(messages=[{"role": "user", "content": {_CANARY: _CANARY}}]),
        _with(messages=_CANARY),
        _with(logit_bias={_CANARY: _CANARY}),
        _with(temperature=_CANARY),
        _with(response_format={"type": _CANARY}),
        _schema({"type": _CANARY}),
        _schema({"properties": {_CANARY: {"type": _CANARY}}}),
        _schema({"$ref": f"#/{_CANARY}"}),
        _schema({"pattern": f"({_CANARY}"}),
        _with(tools=[{"type": "function", "function": {"name": _CANARY + " "}}]),
        _with(tool_choice={"type": "function", "function": {"name": _CANARY}}),
        _with(user=[_CANARY]),
        {**_with(stream=_CANARY), _CANARY: _CANARY},
    ],
    ids=lambda body: str(sorted(body)),
)
def test_lg_01_no_error_echoes_a_value_or_a_key_that_the_caller_chose(body: dict[str, Any]) -> None:
    error = _refused(body)
    assert _CANARY not in error.message
    assert _CANARY not in (error.param or "")


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.sampled_from(
    ["model", "messages", "prompt", "stream", "n", "stop", "logit_bias", "tools", "tool_choice", "response_format",
     "temperature", "max_tokens", "stream_options", "top_logprobs", "seed", "user", "other"]
)  # fmt: skip


@settings(max_examples=300)
@given(st.dictionaries(_FIELDS, _ANY, max_size=4), st.sampled_from(list(Endpoint)))
def test_rv_09_any_json_is_accepted_or_a_client_error(fields: dict[str, Any], endpoint: Endpoint) -> None:
    body = {**CHAT, "prompt": "x", "input": "x", "max_tokens": 5, **fields}
    try:
        validate(endpoint, body)
    except InvalidRequest as error:
        assert error.param is None or error.param.split(".")[0].split("[")[0] in body


def test_embeddings_take_as_many_texts_as_clients_collect() -> None:
    """LangChain sends a thousand at once."""
    for texts in (["a"] * 2048, [[5]] * 2048):
        validate(Endpoint.EMBEDDINGS, {"model": "m", "input": texts})
        with pytest.raises(InvalidRequest) as refused:
            validate(Endpoint.EMBEDDINGS, {"model": "m", "input": [*texts, texts[0]]})
        assert refused.value.param == "input"
