"""Puts tools, calls and their results into messages for a chat template that has no place for them.

Such a template drops them without a word: the model would neither know the tools nor see what it called.
"""

from __future__ import annotations

from typing import Any

import orjson

from edge.service.tools import form

_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n"
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)


def spelled_out(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, system_role: bool
) -> list[dict[str, Any]]:
    """`messages` in the engine's form (content is text) with `tools`, calls and results as text.

    Where the template has no `system_role`, the tools stand before the first message.
    """
    told = _joined([_as_text(message) for message in messages])
    if not tools:
        return told
    text = _BEFORE + "\n".join(orjson.dumps(tool).decode() for tool in tools) + _AFTER
    first = told[0]
    if first["role"] == "system" or not system_role:
        return [first | {"content": _paragraphs(first["content"], text, tools_last=system_role)}, *told[1:]]
    return [{"role": "system", "content": text}, *told]


def mentions_calls(messages: list[dict[str, Any]]) -> bool:
    """Whether calls or their results stand in the conversation."""
    return any(message.get("tool_calls") or message["role"] == "tool" for message in messages)


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not calls:
        return message
    texts = [form.written(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    return kept | {"content": form.BETWEEN.join([message["content"], *texts] if message["content"] else texts)}


def _joined(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results of parallel calls in one message: many templates insist that roles alternate."""
    told: list[dict[str, Any]] = []
    for message in messages:
        last = told[-1] if told else None
        if last is not None and _is_result(last) and _is_result(message):
            told[-1] = last | {"content": f"{last['content']}\n{message['content']}"}
        else:
            told.append(message)
    return told


def _is_result(message: dict[str, Any]) -> bool:
    return message["role"] == "user" and str(message["content"]).startswith("<tool_response>\n")


def _paragraphs(content: str, tools: str, *, tools_last: bool) -> str:
    if not content:
        return tools
    return f"{content}\n\n{tools}" if tools_last else f"{tools}\n\n{content}"
