"""How tools come before the model, by template and choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edge.runtime.port import ChatTemplate
from edge.service.translation import EngineRequest, translate
from shared.openai.facts import Endpoint
from tests.edge.service.fakes import FACTS, MODEL

_TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("look", "list")
]
_CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
_NAMED = {"type": "function", "function": {"name": "list"}}
_PLAIN = ChatTemplate(tools=False)
_ANSWER = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


def _request(template: ChatTemplate = _PLAIN, **fields: Any) -> EngineRequest:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "tools": _TOOLS, **fields}
    return translate(Endpoint.CHAT, body, replace(FACTS, template=template))


def test_a_template_with_tools_leaves_free_calls_to_the_engine() -> None:
    request = _request(FACTS.template, parallel_tool_calls=False)
    assert (request.body["tools"], request.body["parallel_tool_calls"]) == (_TOOLS, False)
    assert not request.reads_calls
    assert request.grammar is None


@pytest.mark.parametrize("choice", ["required", _NAMED])
@pytest.mark.parametrize("template", [FACTS.template, _PLAIN])
def test_a_demanded_call_has_a_grammar(template: ChatTemplate, choice: Any) -> None:
    request = _request(template, tool_choice=choice, stop=["}"], response_format=_ANSWER)
    assert request.reads_calls
    assert request.must_call
    assert ("look" in request.body["grammar"]) is (choice == "required")
    assert "stop" not in request.body  # it would cut the call in two
    assert request.body.get("tool_choice") == ("none" if template.tools else None)
    assert ("tools" in request.body) is template.tools


def test_a_template_without_tools_gets_them_as_text_once() -> None:
    sent = _request(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}])
    first, second = sent.body["messages"]
    assert first["content"].startswith("Be brief.\n\n# Tools")
    assert first["content"].count('"name":"look"') == 1
    assert second == {"role": "user", "content": "hi"}
    assert sent.reads_calls
    assert not sent.must_call


def test_without_a_system_role_they_stand_before_the_first_message() -> None:
    (only,) = _request(ChatTemplate(tools=False, system_role=False)).body["messages"]
    assert only["role"] == "user"
    assert only["content"].startswith("# Tools")
    assert only["content"].endswith("\n\nhi")


def test_calls_and_results_of_the_conversation_become_text() -> None:
    """A template without tools would leave them out; results of parallel calls are one turn."""
    sent = _request(
        tools=None,
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Wait.", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "1", "content": "x"},
            {"role": "tool", "tool_call_id": "2", "content": "y"},
        ],
    ).body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"] == 'Wait.\n<tool_call>\n{"name": "look", "arguments": {"a":1}}\n</tool_call>'
    assert sent[2]["content"] == "<tool_response>\nx\n</tool_response>\n<tool_response>\ny\n</tool_response>"


def test_no_tools_are_shown_where_none_may_be_called() -> None:
    request = _request(tool_choice="none", response_format=_ANSWER)
    assert [message["role"] for message in request.body["messages"]] == ["user"]
    assert not request.reads_calls
    assert request.grammar is not None
    assert request.grammar.param == "response_format"
