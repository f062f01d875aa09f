"""A card number in any position of any body is found, however it is written, and its span is where it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition, texts_of
from shared.privacy import PrivacyClass, is_stricter
from tests.router.privacy.specimens import CARD

_NUMBERS = ("4111111111111111", "5555555555554444", "378282246310005", "6011000990139424", "3530111333300000")
_HIDDEN = ("", "", "\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\ufe0f")
_GAPS = ("", " ", "-", "\u00a0", "\u2013", "\u3000", "\u2009", ".", "·")
_SCRIPTS = ("0123456789", "０１２３４５６７８９", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗")
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
_KEY = st.text("abc中é", min_size=1, max_size=6)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEY, inner, max_size=3),
    max_leaves=8,
)
_SLOW = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@st.composite
def _written(draw: st.DrawFn) -> str:
    """A card number in one script, with one kind of gap between groups of four and hidden characters anywhere."""
    number, script, gap = draw(st.sampled_from(_NUMBERS)), draw(st.sampled_from(_SCRIPTS)), draw(st.sampled_from(_GAPS))
    sizes = (4, 6, 5) if len(number) == 15 else (4, 4, 4, 4)
    ends = {sum(sizes[: n + 1]) for n in range(len(sizes) - 1)}
    out = ""
    for index, digit in enumerate(number):
        out += (gap if index in ends else "") + (draw(st.sampled_from(_HIDDEN)) if index else "") + script[int(digit)]
    return out


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A body with the canary in one place of its messages, tools or anywhere else, and the canary."""
    canary = draw(_written())
    words = st.sampled_from(["", "pay ", "卡号", "карта: ", "\n", '"', "x=", "(", "no.\t"])
    text = draw(words) + canary + draw(st.sampled_from(["", " please", "谢谢", ")", '"', "\n", "。", "!", " ok?"]))
    filler = draw(_JSON)
    place = draw(st.sampled_from(range(9)))
    user = {"role": "user", "content": text if place == 0 else "hello"}
    body: dict[str, Any] = {"model": "m", "messages": [user], "extra": filler}
    if place == 1:
        body["messages"].insert(0, {"role": "system", "content": [{"type": "text", "text": text}]})
    elif place == 2:
        arguments = json.dumps({"a": [filler, {"b": text}]}, ensure_ascii=draw(st.booleans()))
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        body["messages"].append({"role": "assistant", "content": None, "tool_calls": [call]})
    elif place == 3:
        body["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {"enum": ["x", text]}}}]
    elif place == 4:
        body["metadata"] = {text: "x"}
    elif place == 5:
        cut = draw(st.integers(1, len(canary) - 1))
        parts = [canary[:cut], canary[cut:]]
        body["messages"].append({"role": "user", "content": [{"type": "text", "text": part} for part in parts]})
    elif place == 6:
        body["prompt"] = ["x", text]
    elif place == 7:
        body["unknown"] = {"deep": [[{"er": [filler, text]}]]}
    elif place == 8:
        body["user"] = text
    return body, canary


@_SLOW
@given(_bodies())
def test_pi_07_a_canary_anywhere_is_at_least_personal(scanner: Scanner, case: tuple[dict[str, Any], str]) -> None:
    body, _ = case
    found = scanner.scan(texts_of(body))
    assert is_stricter(found.privacy_class, PrivacyClass.PUBLIC)
    assert "card" in found.kinds


@_SLOW
@given(_bodies())
def test_spans_lie_in_the_text_of_their_position(scanner: Scanner, case: tuple[dict[str, Any], str]) -> None:
    body, _ = case
    texts = list(texts_of(body))
    lengths: dict[str, int] = {}
    for text in texts:
        lengths[text.position] = max(lengths.get(text.position, 0), len(text.text))
    for entity in scanner.scan(texts).entities:
        assert 0 <= entity.start < entity.end <= lengths[entity.position]


@_SLOW
@given(_written(), st.sampled_from(["", "卡号", "pay ", "é", "📎 "]), st.sampled_from(["", "谢谢", ", bye", "📎"]))
def test_pi_01_the_span_is_exactly_what_was_written(scanner: Scanner, card: str, before: str, after: str) -> None:
    found = scanner.scan([TextPosition("t", before + card + after)])
    assert [(e.kind, e.start, e.end) for e in found.entities] == [("card", len(before), len(before) + len(card))]


@_SLOW
@given(st.text(max_size=300) | st.text("0123456789 -./@+:aXé\u200b４%&#;=", max_size=300))
def test_any_text_is_scanned_to_its_end_with_valid_spans(scanner: Scanner, text: str) -> None:
    found = scanner.scan([TextPosition("t", text)])
    assert found.complete
    assert all(0 <= e.start < e.end <= len(text) for e in found.entities)


@pytest.mark.parametrize("size", [8, 700, 5_000])
@pytest.mark.parametrize("cut", range(1, len(CARD)))
def test_pi_09_a_number_that_is_cut_over_a_seam_is_one_number(scanner: Scanner, size: int, cut: int) -> None:
    """Two parts of one message, however long the parts are around the seam."""
    parts = ["word " * (size // 5) + CARD[:cut], CARD[cut:] + " word" * (size // 5)]
    content = [{"type": "text", "text": part} for part in parts]
    found = scanner.scan(texts_of({"messages": [{"role": "user", "content": content}]}))
    assert "card" in found.kinds


@pytest.mark.parametrize("turns", [("4111 1111", "1111 1111"), ("4111", "1111", "1111", "1111")])
def test_pi_07_a_number_told_over_several_turns_is_one_number(scanner: Scanner, turns: tuple[str, ...]) -> None:
    alone = [{"role": "user", "content": turn} for turn in turns]
    answered = [m for turn in alone for m in (turn, {"role": "assistant", "content": "go on"})]
    for messages in (alone, answered):
        assert scanner.scan(texts_of({"messages": messages})).kinds == {"card"}


def test_pi_07_numbers_of_a_list_are_read_together(scanner: Scanner) -> None:
    assert scanner.scan(texts_of({"x": [4111, 1111, 1111, 1111]})).kinds == {"card"}
    assert scanner.scan(texts_of({"x": 4111111111111111})).kinds == {"card"}


def test_a_finding_within_one_text_is_not_reported_again_for_the_joined_one(scanner: Scanner) -> None:
    messages = [{"role": "user", "content": f"pay {CARD}"}, {"role": "user", "content": "now"}]
    found = scanner.scan(texts_of({"messages": messages}))
    assert [(e.position, e.start, e.end) for e in found.entities] == [("messages[0].content", 4, 23)]


_LEFT, _RIGHT = "41111111", "11111111"


@pytest.mark.parametrize(
    "fields",
    [
        {"user": _LEFT, "messages": [{"role": "user", "content": _RIGHT}]},
        {"messages": [{"role": "user", "content": _RIGHT}], "user": _LEFT},
        {"messages": [{"role": "user", "content": "it begins with 4111 1111"}], "user": "1111 1111"},
        {"messages": [{"role": "user", "name": _LEFT, "content": _RIGHT}]},
        {"messages": [{"role": "user", "name": _RIGHT, "content": f"mine: {_LEFT}"}]},
        {"messages": [{"role": "user", "name": n, "content": "hello"} for n in (_LEFT, _RIGHT)]},
        {"user": _LEFT, "metadata": {"rest": f"{_RIGHT} is the rest"}},
        {"metadata": {_LEFT: "a", "b": _RIGHT}},
        {"safety_identifier": _LEFT, "prompt_cache_key": _RIGHT},
        {"prompt": "x", "suffix": _LEFT, "user": _RIGHT},
        {"seed": int(_LEFT), "user": _RIGHT},
        {"stop": [_LEFT], "user": _RIGHT},
        {"tools": [{"type": "function", "function": {"name": "f", "description": d}} for d in (_LEFT, _RIGHT)]},
        {"messages": [{"role": "assistant", "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": f'{{"x":"{each}"}}'}}
            for each in (_LEFT, _RIGHT)
        ]}]},
        {"user": _LEFT, "response_format": {"type": "json_schema", "json_schema": {"schema": {"const": _RIGHT}}}},
    ],
)  # fmt: skip
def test_pi_07_a_number_that_is_cut_over_two_fields_is_one_number(scanner: Scanner, fields: dict[str, Any]) -> None:
    assert "card" in scanner.scan(texts_of({"model": "m", **fields})).kinds


def test_numbers_of_a_table_are_not_put_together(scanner: Scanner) -> None:
    """Some pair of many always passes a check; so do sums, sizes and years of a usual request."""
    rows = [{"role": "user", "content": f"{n}"} for n in (41111111, 11111111, 50000000, 62000000, 40000000)]
    assert not scanner.scan(texts_of({"model": "m", "x": {f"r{n}": row for n, row in enumerate(rows)}})).kinds
    usual = {"model": "m-2024", "seed": 4096, "max_tokens": 4111, "user": "1111", "messages": [{"content": "in 1111"}]}
    assert not scanner.scan(texts_of(usual)).kinds
