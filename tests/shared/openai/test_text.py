"""PI-07: no field of a body carries text past the one who looks for text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.openai.text import texts_of

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
    "key", ["AKIAQWERTYUIOPASDFGH", "hf_" + "abcdefghijKLMNOPQRST" * 2, "glpatxAbCdEfGhIjKlMnOpQr"]
)
def test_a_key_that_may_be_a_token_is_a_text_and_stays_out_of_positions(key: str) -> None:
    found = list(texts_of(_chat(metadata={key: {"x": CARD}})))
    assert [f.position for f in found if f.text == key] == ["metadata.*"]
    assert "metadata.*.x" in [f.position for f in found]
    assert not [f for f in found if key in f.position]


def test_every_key_of_the_callers_own_choice_is_a_text() -> None:
    """An operator's word list may hold any of them."""
    arguments = json.dumps({"bluebird": {"x": "\u00e9"}})
    found = list(texts_of(_chat(_USER, _call(arguments), metadata={"Nightjar": {"osprey_plan": 1}})))
    assert [f.text.split("\n") for f in found if f.position == "*"] == [["bluebird", "x", "Nightjar", "osprey_plan"]]


_LEFT, _RIGHT = "sk-proj-AbCdEf01", "23456789abcdef0123"
_SAID = {"type": "text", "text": _LEFT}
_SPLITS: dict[str, dict[str, Any]] = {
    "prompt and suffix": {"model": "m", "prompt": _LEFT, "suffix": _RIGHT},
    "prompts": {"model": "m", "prompt": [_LEFT, _RIGHT]},
    "two turns": _chat({"role": "user", "content": _LEFT}, {"role": "user", "content": _RIGHT}),
    "turns around an answer": _chat(
        {"role": "user", "content": _LEFT},
        {"role": "assistant", "content": "go on"},
        {"role": "user", "content": _RIGHT},
    ),
    "a text and a refusal part": _chat(
        {"role": "assistant", "content": [_SAID, {"type": "refusal", "refusal": _RIGHT}]}
    ),
    "a content and a refusal": _chat({"role": "assistant", "content": _LEFT, "refusal": _RIGHT}),
    "a part and the next message": _chat({"role": "user", "content": [_SAID]}, {"role": "user", "content": _RIGHT}),
    "words of a list": _chat(stop=[_LEFT, _RIGHT]),
    "values of an object": _chat(metadata={"a": _LEFT, "b": _RIGHT}),
    "values of arguments": _chat(_USER, _call(json.dumps({"a": _LEFT, "b": _RIGHT}))),
}


@pytest.mark.parametrize("body", _SPLITS.values(), ids=_SPLITS)
def test_what_is_split_over_two_places_is_whole_somewhere(body: dict[str, Any]) -> None:
    texts = [found.text for found in texts_of(body)]
    assert any(_LEFT + _RIGHT in text for text in texts)
    assert any(f"{_LEFT} {_RIGHT}" in text for text in texts)


@pytest.mark.parametrize("cut", [10, 300, 600, 4_000, 8_000])
def test_a_long_word_is_kept_whole_where_it_goes_on_over_a_seam(cut: int) -> None:
    word = "aB3d_" * 1_000 + "." + "Ef-6" * 1_000
    before, after = "word " * 400, " word" * 400
    parts = [{"type": "text", "text": before + word[:cut]}, {"type": "text", "text": word[cut:] + after}]
    assert any(word in found.text for found in texts_of(_chat({"role": "user", "content": parts})) if found.seams)
    turns = [{"role": "user", "content": part["text"]} for part in parts]
    assert any(word in found.text for found in texts_of(_chat(*turns)))


@pytest.mark.parametrize(
    ("number", "digits"),
    [
        ("4111111111111111e-30", "4111111111111111"),
        ("0.4111111111111111", "4111111111111111"),
        ("-0.00004111111111111111E+2", "4111111111111111"),
        ("4111.111111111111", "4111111111111111"),
        ("5105105105105100e-3", "5105105105105100"),
        ("41111111111111110e-1", "4111111111111111"),
        ("0.9007199254740993", "9007199254740993"),
    ],
)
def test_pi_07_a_number_is_read_as_it_travels(number: str, digits: str) -> None:
    """Parsing rounds, shifts the point and drops zeros; the bytes that are sent do not."""
    raw = b'{"model": "m", "note": "a 1.5", "x": {"default" : ' + number.encode() + b'}, "y": [1.25, 3]}'
    assert ("*", digits) in [(found.position, found.text) for found in texts_of(json.loads(raw), raw)]


def test_usual_numbers_are_no_further_texts() -> None:
    raw = b'{"temperature": 0.7, "top_p": 0.95, "seed": 12345, "text": "0.4111111111111111", "x": 0.1234567891}'
    assert "*" not in [f.position for f in texts_of(json.loads(raw), raw) if f.text.isdigit()]


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
        ("messages", "ab"),
    ]
