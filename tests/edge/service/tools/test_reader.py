"""Calls read out of streamed text: the same however it is cut, and nothing that was not said."""

from __future__ import annotations

import itertools
from typing import Any

import orjson
import pytest

from edge.service.tools import form
from edge.service.tools.reader import CallShaper, says_nothing
from shared.errors import StreamBroken

_ARGUMENTS = '{"city": "Pa\\"}]ris\\\\", "days": [1, {"a": "{"}], "é": "杭"}'
_ONE = form.written("get_weather", _ARGUMENTS)
_TWO = f"{_ONE}\n{form.written('now', '{}')}"


def _read(texts: list[str], finish: str = "stop", *, must_call: bool = True) -> tuple[list[dict[str, Any]], str]:
    """Deltas that are worth an event, and the finish reason."""
    numbers = itertools.count()
    shaper = CallShaper(must_call=must_call, new_id=lambda: f"call_{next(numbers)}")
    deltas, reason = [], ""
    for text in [*texts, None]:
        choice: dict[str, Any] = {"index": 0, "delta": {"content": text} if text is not None else {}}
        chunk: dict[str, Any] = {"choices": [choice | {"finish_reason": None if text is not None else finish}]}
        shaper.rewrite(chunk)
        if not says_nothing(chunk):
            deltas.append(chunk["choices"][0]["delta"])
        reason = chunk["choices"][0]["finish_reason"]
    return deltas, reason


def _joined(deltas: list[dict[str, Any]]) -> tuple[str, list[tuple[str, str, str]]]:
    calls: dict[int, list[str]] = {}
    for call in (call for delta in deltas for call in delta.get("tool_calls", ())):
        entry = calls.setdefault(call["index"], ["", "", ""])
        entry[0] += call.get("id", "")
        entry[1] += call["function"].get("name", "")
        entry[2] += call["function"]["arguments"]
    return "".join(delta.get("content") or "" for delta in deltas), [(a, b, c) for a, b, c in calls.values()]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_calls_are_the_same_however_the_text_is_cut(size: int) -> None:
    deltas, reason = _read([_TWO[at : at + size] for at in range(0, len(_TWO), size)])
    assert _joined(deltas) == ("", [("call_0", "get_weather", _ARGUMENTS), ("call_1", "now", "{}")])
    assert reason == "tool_calls"
    assert orjson.loads(_ARGUMENTS)


def test_arguments_go_on_as_they_come() -> None:
    deltas, _ = _read([form.OPENING + "f" + form.MIDDLE, '{"a": ', "1", "}", "}\n</tool", "_call>"])
    heads = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
    assert [head["arguments"] for head in heads] == ["", '{"a": ', "1", "}"]
    assert [head.get("name") for head in heads] == ["f", None, None, None]


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("text", ["Sunny.", "<b>hi</b>", "<tool", "<tool_box>", "", "a <tool_call> b"])
def test_text_is_text(text: str, size: int) -> None:
    deltas, reason = _read([text[at : at + size] for at in range(0, len(text), size)], must_call=False)
    assert _joined(deltas) == (text, [])
    assert reason == "stop"


@pytest.mark.parametrize("length", range(0, len(_TWO), 3))
def test_a_limit_in_the_middle_says_length_and_invents_nothing(length: int) -> None:
    deltas, reason = _read([_TWO[:length]], "length")
    text, calls = _joined(deltas)
    assert reason == "length"
    assert text == ""
    assert all(_ARGUMENTS.startswith(arguments) or arguments == "{}"[: len(arguments)] for _, _, arguments in calls)


@pytest.mark.parametrize(
    "text", ["Sunny.", '{"name": "f"}', _ONE + " and more", form.OPENING + "f" + form.MIDDLE + "1"]
)
def test_what_the_grammar_rules_out_breaks_the_answer(text: str) -> None:
    with pytest.raises(StreamBroken):
        _read([text])


def test_a_demanded_call_that_ends_early_breaks_the_answer() -> None:
    with pytest.raises(StreamBroken):
        _read([_ONE[:-3]])


def test_choices_are_read_apart() -> None:
    shaper = CallShaper(must_call=False, new_id=lambda: "id")
    for index, text in ((0, _ONE[:20]), (1, "Sunny"), (0, _ONE[20:])):
        chunk: dict[str, Any] = {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": None}]}
        shaper.rewrite(chunk)
    ends: dict[str, Any] = {"choices": [{"index": n, "delta": {}, "finish_reason": "stop"} for n in (0, 1)]}
    shaper.rewrite(ends)
    assert [choice["finish_reason"] for choice in ends["choices"]] == ["tool_calls", "stop"]
