"""Decides how the tools of one request come before the model, and who reads calls out of its answer.

Where the template spells out tools and the model is free to call one, the engine does both. It enforces neither
`required` nor a named function, and knows no tools where the template has none: there the answer gets a grammar that
it cannot leave, and we read the calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edge.runtime.port import ChatTemplate
from edge.service import grammar
from edge.service.grammar import Grammar
from edge.service.tools import form, prompt


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a chat body becomes. `reads_calls`: the answer is in the form of `form.grammar_of`, and must hold a call if
    `must_call`."""

    messages: list[dict[str, Any]]
    fields: dict[str, Any] = field(default_factory=dict)
    grammar: Grammar | None = None
    reads_calls: bool = False
    must_call: bool = False


def must_call(body: dict[str, Any]) -> bool:
    """Whether a validated body demands that a tool is called."""
    return body.get("tool_choice") not in (None, "auto", "none")


def use_of(body: dict[str, Any], messages: list[dict[str, Any]], template: ChatTemplate) -> ToolUse:
    """The use that a validated `body` makes of tools; `messages` are its messages in the engine's form."""
    tools = body.get("tools") if body.get("tool_choice") != "none" else None
    told = messages
    if not template.tools and (tools or prompt.mentions_calls(messages)):
        told = prompt.spelled_out(messages, tools or [], system_role=template.system_role)
    if not tools:
        return ToolUse(told, grammar=grammar.of_format(body.get("response_format")))
    shown = {"tools": tools} if template.tools else {}
    if template.tools and not must_call(body):
        parallel = body.get("parallel_tool_calls")
        return ToolUse(told, shown | ({} if parallel is None else {"parallel_tool_calls": parallel}))
    if template.tools:
        shown["tool_choice"] = "none"  # the engine takes no grammar beside tools that it reads itself
    return ToolUse(told, shown, _grammar(body, tools), reads_calls=True, must_call=must_call(body))


def _grammar(body: dict[str, Any], tools: list[dict[str, Any]]) -> Grammar:
    choice = body.get("tool_choice")
    named = choice["function"]["name"] if isinstance(choice, dict) else None
    functions = [tool["function"] for tool in tools if named in (None, tool["function"]["name"])]
    single = named is not None or body.get("parallel_tool_calls") is False
    return form.grammar_of(
        functions,
        most_calls=1 if single else form.MOST_CALLS,
        must_call=must_call(body),
        otherwise=grammar.schema_of(body.get("response_format")),
    )
