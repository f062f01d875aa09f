"""The grammar of tool calls in our form: what an answer may be, by the compiler that the engine uses."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from llguidance import LLMatcher, LLTokenizer

from edge.service.grammar import Grammar
from edge.service.tools import form

_WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]},
}
_NOW: dict[str, Any] = {"name": "now"}
_PARIS = form.written("get_weather", '{"city": "Paris"}')


def _accepts(grammar: Grammar, text: str) -> bool:
    tokenizer = LLTokenizer("byte")
    tokens = tokenizer.tokenize_str(text)
    matcher = LLMatcher(tokenizer, grammar.text)
    if matcher.validate_tokens(tokens) < len(tokens):
        return False
    return bool(matcher.consume_tokens(tokens)) and bool(matcher.is_accepting())


def _grammar(*, must_call: bool = True, most_calls: int = 1, otherwise: dict[str, Any] | None = None) -> Grammar:
    return form.grammar_of([_WEATHER, _NOW], most_calls=most_calls, must_call=must_call, otherwise=otherwise)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        (_PARIS, True),
        (form.written("now", "{}"), True),
        (form.written("get_weather", '{"city": "Bonn"}'), False),
        (form.written("get_weather", "{}"), False),
        (form.written("get_weather", '{"city": "Paris", "more": 1}'), False),
        (form.written("now", '{"city": "Paris"}'), False),
        (form.written("other", "{}"), False),
        (_PARIS[:-1], False),
        (f"{_PARIS}\n{_PARIS}", False),
        ("", False),
        ("It is sunny.", False),
    ],
)
def test_a_demanded_call_is_one_of_the_functions_with_its_arguments(text: str, accepted: bool) -> None:
    assert _accepts(_grammar(), text) is accepted


def test_parallel_calls_are_bounded() -> None:
    several = _grammar(most_calls=3)
    for calls in (1, 2, 3, 4):
        assert _accepts(several, "\n".join([_PARIS] * calls)) is (calls <= 3)


def test_a_free_answer_is_text_or_a_call_and_no_half_call() -> None:
    free = _grammar(must_call=False)
    for text in ("", "It is sunny.", "<b>", "<tool", "see <tool_call> there", _PARIS):
        assert _accepts(free, text), text
    for text in ("<tool_call>", "<tool_call>\n{}", form.written("other", "{}")):
        assert not _accepts(free, text), text


def test_a_free_answer_keeps_to_the_response_format() -> None:
    """Also where the answer begins like the JSON of a call."""
    answer = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    free = _grammar(must_call=False, otherwise=answer | {"additionalProperties": False})
    assert _accepts(free, '{"name": "x"}')
    assert _accepts(free, _PARIS)
    assert not _accepts(free, "It is sunny.")


def test_parameters_that_leave_further_properties_open_stay_open() -> None:
    function = {"name": "f", "parameters": {"type": "object", "additionalProperties": {"type": "integer"}}}
    open_ended = form.grammar_of([function], most_calls=1, must_call=True, otherwise=None)
    assert _accepts(open_ended, form.written("f", '{"a": 1, "b": 2}'))
    assert not _accepts(open_ended, form.written("f", '{"a": "x"}'))


def test_combined_schemas_are_marked() -> None:
    """What the compiler merges can take exponential time."""
    parts = [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]
    for parameters, combines in (({"allOf": parts}, True), ({"anyOf": parts}, False), (None, False)):
        function = {"name": "f", "parameters": parameters}
        assert form.grammar_of([function], most_calls=1, must_call=True, otherwise=None).combines is combines


def test_arguments_that_are_no_json_stand_as_text() -> None:
    assert orjson.loads(form.written("f", "{broken").split("\n")[1])["arguments"] == "{broken"
