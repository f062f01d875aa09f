"""Turns the answer of the OpenAI path into Ollama's: one JSON object a line, or one in all.

Tool calls go out whole, because their arguments are an object in Ollama's API and no text that could be cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from edge.service.assembly import Assembly, take_call
from edge.service.chunks import ChunkStream
from edge.service.closing import Closing
from edge.service.ollama.voice import Said, Voice
from edge.service.translation import EngineRequest
from shared.errors import StreamBroken
from shared.openai.sse import DONE

_LENGTH = "length"


class Lines:
    """A streamed answer of one choice."""

    def __init__(self, request: EngineRequest, voice: Voice) -> None:
        self._chunks = ChunkStream(request)
        self._voice = voice
        self._calls: dict[int, dict[str, Any]] = {}
        self._reason = "stop"

    @property
    def has_content(self) -> bool:
        return self._chunks.has_content

    @property
    def closing(self) -> Closing:
        return self._chunks.closing

    def feed(self, event: bytes) -> list[bytes]:
        """The lines for one of the engine's events; raises as `ChunkStream.feed`."""
        return [line for sent in self._chunks.feed(event) for line in self._lines(sent)]

    def _lines(self, sent: bytes) -> list[bytes]:
        if sent == DONE:
            return self._end()
        for choice in orjson.loads(sent[5:]).get("choices") or ():
            self._reason = choice.get("finish_reason") or self._reason
            delta = choice.get("delta") or {}
            for call in delta.get("tool_calls") or ():
                take_call(self._calls, call)
            said = _said(delta or {"content": choice.get("text")}, choice.get("logprobs"))
            return [] if said == Said() else [self._voice.piece(said)]
        return []

    def _end(self) -> list[bytes]:
        calls = whole_calls([self._calls[index] for index in sorted(self._calls)], self._reason)
        told = [self._voice.piece(Said(calls=calls))] if calls else []
        return [*told, self._voice.end(Said(), self._reason, self.closing)]


class WholeLine:
    """An answer of one choice in one piece."""

    def __init__(self, request: EngineRequest, voice: Voice) -> None:
        self._assembly = Assembly(request)
        self._voice = voice

    @property
    def has_content(self) -> bool:
        return self._assembly.has_content

    @property
    def closing(self) -> Closing:
        return self._assembly.closing

    def feed(self, event: bytes) -> None:
        """Take in one of the engine's events; raises as `Assembly.feed`."""
        self._assembly.feed(event)

    def answer(self) -> bytes:
        """The whole answer; raises as `Assembly.answer`."""
        choice = orjson.loads(self._assembly.answer())["choices"][0]
        message, reason = choice.get("message") or {"content": choice.get("text")}, choice["finish_reason"]
        calls = whole_calls(message.get("tool_calls") or [], reason)
        return self._voice.end(_said(message, choice.get("logprobs"), calls), reason, self.closing)


def whole_calls(calls: list[dict[str, Any]], reason: str) -> tuple[dict[str, Any], ...]:
    """OpenAI's calls as Ollama's. One that the output limit cut is no call.

    Raises:
        StreamBroken: arguments are no object, and nothing cut them.
    """
    told = []
    for index, call in enumerate(calls):
        arguments = _object(call["function"]["arguments"] or "{}")
        if arguments is None and reason != _LENGTH:
            raise StreamBroken("The engine wrote a tool call whose arguments are no JSON object.")
        if arguments is not None:
            function = {"index": index, "name": call["function"]["name"], "arguments": arguments}
            told.append({"id": call["id"], "function": function})
    return tuple(told)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _said(message: Mapping[str, Any], logprobs: dict[str, Any] | None, calls: tuple[dict[str, Any], ...] = ()) -> Said:
    return Said(
        text=message.get("content") or "",
        thinking=message.get("reasoning_content") or "",
        calls=calls,
        logprobs=tuple(_logprobs(logprobs or {})),
    )


def _logprobs(given: dict[str, Any]) -> list[dict[str, Any]]:
    """Entries of OpenAI's chat as they are; the four columns of its legacy shape as entries."""
    if "tokens" not in given:
        entries = given.get("content") or []
        return [{name: value for name, value in entry.items() if value not in (None, [])} for entry in entries]
    alternatives = given.get("top_logprobs") or [{}] * len(given["tokens"])
    return [
        {"token": token, "logprob": logprob}
        | ({"top_logprobs": [{"token": name, "logprob": each} for name, each in others.items()]} if others else {})
        for token, logprob, others in zip(given["tokens"], given["token_logprobs"], alternatives, strict=True)
    ]
