"""Reads tool calls out of an answer in our form while it streams, and writes them as OpenAI's deltas.

Arguments go on as they come; only what may be part of the form around them is held back.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from enum import Enum
from typing import Any

from edge.service.tools.form import BETWEEN, CLOSING, MIDDLE, OPENING
from shared.errors import StreamBroken


class _Place(Enum):
    """What is expected next."""

    START = "start"
    TEXT = "text"
    NAME = "name"
    ARGUMENTS = "arguments"
    CLOSING = "closing"
    NEXT = "next"


class CallReader:
    """Reads one choice."""

    def __init__(self, *, must_call: bool, new_id: Callable[[], str]) -> None:
        self._must_call = must_call
        self._new_id = new_id
        self._place = _Place.START
        self._held = ""
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._calls = 0
        self._text: list[str] = []
        self._deltas: list[dict[str, Any]] = []
        self._steps = {
            _Place.START: self._start,
            _Place.TEXT: self._take_text,
            _Place.NAME: self._name,
            _Place.ARGUMENTS: self._arguments,
            _Place.CLOSING: self._closing,
            _Place.NEXT: self._next,
        }

    @property
    def called(self) -> bool:
        """Whether the answer holds calls, all of them whole."""
        return self._place is _Place.NEXT and not self._held

    def feed(self, text: str, *, last: bool = False) -> dict[str, Any]:
        """The delta for more of the answer's text; empty while it is held back. With the `last` of it, what may have
        become a call is text after all.

        Raises:
            StreamBroken: the answer is not in our form, which its grammar rules out.
        """
        self._held += text
        while self._held and self._steps[self._place]():
            pass
        if last and self._place is _Place.START and not self._must_call:
            self._take_text()
        text, deltas = "".join(self._text), self._deltas
        self._text, self._deltas = [], []
        return ({"content": text} if text else {}) | ({"tool_calls": deltas} if deltas else {})

    def _start(self) -> bool:
        if self._taken(OPENING):
            self._place = _Place.NAME
        elif not OPENING.startswith(self._held):
            self._require(not self._must_call)
            self._place = _Place.TEXT
        else:
            return False
        return True

    def _take_text(self) -> bool:
        self._text.append(self._held)
        self._held = ""
        return False

    def _name(self) -> bool:
        name, found, rest = self._held.partition(MIDDLE)
        if not found:
            return False
        function = {"name": name, "arguments": ""}
        self._deltas.append({"index": self._calls, "id": self._new_id(), "type": "function", "function": function})
        self._held, self._place = rest, _Place.ARGUMENTS
        return True

    def _arguments(self) -> bool:
        """Up to the bracket that closes the object."""
        for position, character in enumerate(self._held, 1):
            if self._in_string:
                self._in_string = self._escaped or character != '"'
                self._escaped = character == "\\" and not self._escaped
                continue
            self._require(self._depth > 0 or character == "{")
            self._in_string = character == '"'
            self._depth += (character in "{[") - (character in "}]")
            if self._depth == 0:
                self._argue(position)
                self._place = _Place.CLOSING
                return True
        self._argue(len(self._held))
        return False

    def _argue(self, length: int) -> None:
        text, self._held = self._held[:length], self._held[length:]
        last = self._deltas[-1] if self._deltas else None
        if last is not None and last["index"] == self._calls:
            last["function"]["arguments"] += text
        else:
            self._deltas.append({"index": self._calls, "function": {"arguments": text}})

    def _closing(self) -> bool:
        if self._taken(CLOSING):
            self._calls += 1
            self._place = _Place.NEXT
            return True
        self._require(CLOSING.startswith(self._held))
        return False

    def _next(self) -> bool:
        if self._taken(BETWEEN + OPENING):
            self._place = _Place.NAME
            return True
        self._require((BETWEEN + OPENING).startswith(self._held))
        return False

    def _taken(self, expected: str) -> bool:
        if not self._held.startswith(expected):
            return False
        self._held = self._held[len(expected) :]
        return True

    def _require(self, holds: bool) -> None:
        if not holds:
            raise StreamBroken("The engine's answer is no tool call, which its grammar demands.")


class CallShaper:
    """Rewrites the chunks of one answer, each of whose choices is read by itself."""

    def __init__(self, *, must_call: bool, new_id: Callable[[], str] = lambda: f"call_{secrets.token_hex(12)}") -> None:
        self._must_call = must_call
        self._new_id = new_id
        self._readers: dict[int, CallReader] = {}

    def rewrite(self, chunk: dict[str, Any]) -> None:
        """Turn text into calls in every choice of `chunk`; a finish reason says `tool_calls` where calls are whole.

        Raises:
            StreamBroken: the answer is not what its grammar demands.
        """
        for choice in chunk.get("choices") or ():
            reader = self._reader(choice.get("index", 0))
            delta = choice.get("delta") or {}
            text = delta.pop("content", None) or ""
            if "role" in delta:
                delta["content"] = None
            finish = choice.get("finish_reason")
            choice["delta"] = delta | reader.feed(text, last=finish is not None)
            if finish is not None:
                choice["finish_reason"] = self._finish(reader, finish)

    def _reader(self, index: int) -> CallReader:
        if index not in self._readers:
            self._readers[index] = CallReader(must_call=self._must_call, new_id=self._new_id)
        return self._readers[index]

    def _finish(self, reader: CallReader, reason: str) -> str:
        if reason != "stop":
            return reason
        if reader.called:
            return "tool_calls"
        if self._must_call:
            raise StreamBroken("The engine ended the answer before a tool call was whole.")
        return reason


def says_nothing(chunk: dict[str, Any]) -> bool:
    """Whether what is left of a rewritten chunk is not worth an event."""
    choices = chunk.get("choices") or ()
    return bool(choices) and not any(
        choice.get("delta") or choice.get("logprobs") or choice.get("finish_reason") for choice in choices
    )
