"""Says an Ollama conversation in OpenAI's words: calls get the ids that Ollama lacks, and results find their calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from edge.service.ollama.wire import Message
from shared.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class _Open:
    """A call that no result has answered yet."""

    id: str
    name: str


def conversation(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The same messages as OpenAI's API takes them.

    Raises:
        InvalidRequest: images, or a tool's result without a call that it could be the result of.
    """
    open_calls: deque[_Open] = deque()
    told = []
    for index, message in enumerate(messages):
        refuse_images(message.images, f"messages[{index}].images")
        said: dict[str, Any] = {"role": message.role, "content": message.content or ""}
        if message.role == "assistant" and message.tool_calls:
            said["tool_calls"] = _calls(message, index, open_calls)
        elif message.role == "tool":
            said["tool_call_id"] = _answered(message, index, open_calls)
        told.append(said)
    return told


def refuse_images(images: Sequence[str] | None, param: str) -> None:
    """Raise InvalidRequest if there are any: no model here sees."""
    if images:
        raise InvalidRequest("This model takes no images.", param=param, code="unsupported_content")


def _calls(message: Message, index: int, open_calls: deque[_Open]) -> list[dict[str, Any]]:
    calls = []
    for position, call in enumerate(message.tool_calls or ()):
        identity = call.id or f"call_{index}_{position}"
        open_calls.append(_Open(identity, call.function.name))
        arguments = orjson.dumps(call.function.arguments or {}).decode()
        function = {"name": call.function.name, "arguments": arguments}
        calls.append({"id": identity, "type": "function", "function": function})
    return calls


def _answered(message: Message, index: int, open_calls: deque[_Open]) -> str:
    """The id of the call that a result belongs to: the one it names, else the first of its tool, else the first."""
    if message.tool_call_id:
        return message.tool_call_id  # whether there is such a call is checked with every body
    named = [call for call in open_calls if message.tool_name in (None, "", call.name)]
    if not named:
        raise InvalidRequest("No call of that tool stands before this result.", param=f"messages[{index}].tool_name")
    open_calls.remove(named[0])
    return named[0].id
