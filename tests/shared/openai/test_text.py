"""PI-07: no field of a body carries text past the one who looks for text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.openai.text import has_undecodable, texts_of

CARD = "4111 1111 1111 1111"
_USER = {"role": "user", "content": "hello"}


def _chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages) or [_USER], **fields}


def _call(arguments: str) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


_ESCAPED = json.dumps({"card": CARD}).replace("4111", "\\u0034111")
_POSITIONS = {
    "system": (_chat({"role": "system", "content": CARD}, _USER), "messages[0].content"),
    "user": (_chat({"role": "user", "content": CARD}), "messages[0].content"),
    "earlier user": (
        _chat({"role": "user", "content": CARD}, {"role": "assistant", "content": "ok"}, _USER),
        "messages[0].content",
    ),
    "assistant": (_chat(_USER, {"role": "assistant", "content": CARD}), "messages[1].content"),
    "tool arguments": (_chat(_USER, _call(_ESCAPED)), "messages[1].tool_calls[0].function.arguments.card"),
    "tool result": (_chat({"role": "tool", "tool_call_id": "c1", "content": CARD}), "messages[0].content"),
    "tool result parts": (
        _chat({"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": CARD}]}),
        "messages[0].content[0].text",
    ),
    "name": (_chat({"role": "user", "content": "x", "name": CARD}), "messages[0].name"),
    "user field": (_chat(user=CARD), "user"),
    "tool description": (
        _chat(tools=[{"type": "function", "function": {"name": "f", "description": CARD}}]),
        "tools[0].function.description",
    ),
    "schema text": (
        _chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"title": CARD}}}),
        "response_format.json_schema.schema.title",
    ),
    "legacy prompt": ({"model": "m", "prompt": CARD}, "prompt"),
}
"""The twelve places of the public case."""

_MORE_POSITIONS = {
    "legacy prompt list": ({"model": "m", "prompt": ["x", CARD]}, "prompt[1]"),
    "suffix": ({"model": "m", "prompt": "x", "suffix": CARD}, "suffix"),
    "embedding input": ({"model": "m", "input": [CARD]}, "input[0]"),
    "model": (_chat(model=CARD), "model"),
    "stop": (_chat(stop=[CARD]), "stop[0]"),
    "enum of a schema": (
        _chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {"enum": [CARD]}}}]),
        "tools[0].function.parameters.enum[0]",
    ),
    "a key": (_chat(metadata={CARD: 1}), "metadata.*"),
    "an unknown field": (_chat(x_vendor={"deep": [{"er": CARD}]}), "x_vendor.deep[0].er"),
    "refusal": (_chat({"role": "assistant", "refusal": CARD}), "messages[0].refusal"),
    "arguments within arguments": (
        _chat(_USER, _call(json.dumps({"inner": json.dumps({"card": "4\n" + CARD})}))),
        "messages[1].tool_calls[0].function.arguments.inner.card",
    ),
}


@pytest.mark.parametrize(("body", "position"), [*_POSITIONS.values(), *_MORE_POSITIONS.values()],
                         ids=[*_POSITIONS, *_MORE_POSITIONS])  # fmt: skip
def test_pi_07_the_text_is_seen_with_its_position(body: dict[str, Any], position: str) -> None:
    assert position in [found.position for found in texts_of(body) if CARD in found.text]


def test_pi_07_numbers_are_texts_too() -> None:
    found = list(texts_of(_chat(metadata={"a": 4111111111111111, "b": 4.111111111111111e15, "small": 5})))
    assert [f.position for f in found if f.text == "4111111111111111"] == ["metadata.a", "metadata.b"]
    assert "metadata.small" not in [f.position for f in found]


@pytest.mark.parametrize("seam", range(1, len(CARD)))
def test_a_number_cut_over_parts_or_messages_is_whole_in_the_joined_text(seam: int) -> None:
    left, right = CARD[:seam], CARD[seam:]
    parts = [{"type": "text", "text": left}, {"type": "text", "text": right}]
    assert any(CARD in f.text for f in texts_of(_chat({"role": "user", "content": parts})))
    joined = [f.text.replace(" ", "") for f in texts_of(_chat(
        {"role": "user", "content": left}, {"role": "user", "content": right}
    ))]  # fmt: skip
    assert any(CARD.replace(" ", "") in text for text in joined)


def test_a_position_never_repeats_what_someone_typed() -> None:
    found = list(texts_of(_chat(metadata={CARD: {CARD: CARD}, "ключ": "x"})))
    assert [f for f in found if CARD in f.position or "ключ" in f.position] == []


@pytest.mark.parametrize(
    "body",
    [
        _chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}),
        _chat({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "input_audio", "input_audio": {}}]}),
        _chat({"role": "tool", "tool_call_id": "c", "content": [{"type": "file", "file": {}}]}),
        {"model": "m", "prompt": [1, 2, 3]},
        {"model": "m", "prompt": [[1, 2], [3]]},
        {"model": "m", "input": [7]},
    ],
    ids=str,
)
def test_what_no_scanner_can_read_is_said_so(body: dict[str, Any]) -> None:
    assert has_undecodable(body)


@pytest.mark.parametrize(
    "body",
    [
        _chat(),
        {"model": "m", "prompt": "text"},
        {"model": "m", "prompt": ["a", "b"]},
        _chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {"properties": {"type": {}}}}}]),
    ],
    ids=str,
)
def test_plain_text_is_readable(body: dict[str, Any]) -> None:
    assert not has_undecodable(body)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(_JSON, st.lists(st.sampled_from(["k", "messages", "content", 0, 1]), max_size=5))
def test_pi_07_a_text_is_found_wherever_it_stands(around: Any, path: list[Any]) -> None:
    node: Any = CARD
    for step in reversed(path):
        node = {step: node, "beside": around} if isinstance(step, str) else [around, node]
    assert any(CARD in found.text for found in texts_of({"model": "m", "field": node}))


def test_order_is_that_of_the_document() -> None:
    body = {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}
    assert [(found.position, found.text) for found in texts_of(body)] == [
        ("messages[0].role", "system"),
        ("messages[0].content", "a"),
        ("messages[1].role", "user"),
        ("messages[1].content", "b"),
        ("messages", "a b"),
    ]
