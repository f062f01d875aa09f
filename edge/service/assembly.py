"""Puts a streamed answer together into the one JSON object that a client without `stream` expects."""

from __future__ import annotations

from typing import Any

import orjson

from edge.service import engine_errors
from edge.service.closing import Closing
from edge.service.logprobs import LogprobShaper
from edge.service.tools.reader import CallShaper
from edge.service.translation import EngineRequest
from shared.errors import StreamBroken
from shared.openai.facts import Endpoint
from shared.openai.sse import EventKind, read_event

_TEXTS = ("content", "reasoning_content", "refusal")
_LOGPROB_COLUMNS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class Assembly:
    """Collects one answer. Nothing is invented: without a finish reason for each choice there is no answer."""

    def __init__(self, request: EngineRequest) -> None:
        self._chat = request.endpoint is Endpoint.CHAT
        self._sequences = request.slots
        self._model = request.model
        top = request.top_logprobs
        self._logprobs = LogprobShaper(chat=self._chat, top=top) if top is not None else None
        self._calls = CallShaper(must_call=request.must_call) if request.reads_calls else None
        self._choices: dict[int, dict[str, Any]] = {}
        self._head: dict[str, Any] = {}
        self.closing = Closing(prompts=request.prompts)
        self.has_content = False

    def feed(self, event: bytes) -> None:
        """Take in one event of the engine.

        Raises:
            IsthmusError: the engine reports a failure.
        """
        facts = read_event(event)
        if facts.kind is EventKind.ERROR:
            raise engine_errors.of_event(event)
        if facts.kind in (EventKind.COMMENT, EventKind.DONE):
            return
        self.has_content = self.has_content or facts.kind is EventKind.CONTENT
        chunk = orjson.loads(event[5:])
        self.closing.take(chunk)
        if self._logprobs is not None:
            self._logprobs.rewrite(chunk)
        if self._calls is not None:
            self._calls.rewrite(chunk)
        self.closing.finish(chunk)
        if not self._head:
            self._head = {name: chunk.get(name) for name in ("id", "created", "system_fingerprint")}
            self._head["model"] = self._model or chunk.get("model")
        for choice in chunk.get("choices") or ():
            self._take(choice)

    def answer(self) -> bytes:
        """The whole answer as JSON.

        Raises:
            StreamBroken: a choice has not finished.
        """
        choices = [self._choices[index] for index in sorted(self._choices)]
        if len(choices) < self._sequences or any(choice["finish_reason"] is None for choice in choices):
            raise StreamBroken("The engine ended the answer before every choice had finished.")
        shape = _chat_choice if self._chat else _text_choice
        answer = {
            **self._head,
            "object": "chat.completion" if self._chat else "text_completion",
            "choices": [shape(choice) for choice in choices],
        }
        if self.closing.usage is not None:
            answer["usage"] = self.closing.usage
        return orjson.dumps(answer)

    def _take(self, part: dict[str, Any]) -> None:
        index = part.get("index", 0)
        choice = self._choices.setdefault(
            index, {"index": index, "texts": {}, "tools": {}, "logprobs": None, "finish_reason": None}
        )
        delta = part.get("delta") or {"content": part.get("text")}
        for name in _TEXTS:
            if delta.get(name):
                choice["texts"].setdefault(name, []).append(delta[name])
        for call in delta.get("tool_calls") or ():
            take_call(choice["tools"], call)
        if part.get("logprobs"):
            choice["logprobs"] = _joined_logprobs(choice["logprobs"], part["logprobs"])
        choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]


def take_call(calls: dict[int, dict[str, Any]], delta: dict[str, Any]) -> None:
    """Add one streamed piece of a tool call to the `calls` of its choice, by their number."""
    function = delta.get("function") or {}
    call = calls.setdefault(
        delta.get("index", 0), {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
    )
    call["id"] = delta.get("id") or call["id"]
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def _joined_logprobs(known: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    if known is None:
        return more
    for name in ("content", *_LOGPROB_COLUMNS):
        if isinstance(known.get(name), list) and isinstance(more.get(name), list):
            known[name].extend(more[name])
    return known


def _chat_choice(choice: dict[str, Any]) -> dict[str, Any]:
    texts = {name: "".join(parts) for name, parts in choice["texts"].items()}
    calls = [choice["tools"][index] for index in sorted(choice["tools"])]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": texts.get("content", None if calls else ""),
        "refusal": texts.get("refusal"),
    }
    if "reasoning_content" in texts:
        message["reasoning_content"] = texts["reasoning_content"]
    if calls:
        message["tool_calls"] = calls
    return {
        "index": choice["index"],
        "message": message,
        "logprobs": choice["logprobs"],
        "finish_reason": choice["finish_reason"],
    }


def _text_choice(choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "index": choice["index"],
        "text": "".join(choice["texts"].get("content", ())),
        "logprobs": choice["logprobs"],
        "finish_reason": choice["finish_reason"],
    }
