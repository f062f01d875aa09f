"""Reads an answer text by text, whole or as a stream, and writes it again: values restored, findings replaced.

The texts of an answer are the contents, refusals and reasoning of its choices, legacy text, and the arguments of
tool calls. Each of them goes through filters of its own that may hold a bounded tail back; what is held goes out
ahead of the choice's finish reason, or when the stream ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Protocol

import orjson

from shared.errors import StreamBroken
from shared.openai.sse import data_of

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal", "text")
Place = tuple[Any, ...]
"""Where a text of a stream goes on: the choice, then field, tool call and argument."""


class TextFilter(Protocol):
    """Rewrites one text that comes in pieces."""

    def feed(self, piece: str) -> str:
        """What can be passed on now."""

    def end(self) -> str:
        """What was still held back; the text is over."""


class NewFilter(Protocol):
    """Makes the filters of one answer, a filter for each text."""

    @property
    def keeps_tokens(self) -> bool:
        """Whether the log probabilities of tokens may go on: they spell the text out as it was before."""

    def __call__(self, is_json: bool, /) -> TextFilter:
        """The filter of a text; `is_json` where the text is JSON, as tool arguments are."""


class Chain:
    """Filters one after another."""

    def __init__(self, filters: Sequence[TextFilter]) -> None:
        self._filters = tuple(filters)

    def feed(self, piece: str) -> str:
        for each in self._filters:
            piece = each.feed(piece)
        return piece

    def end(self) -> str:
        held = ""
        for each in self._filters:
            held = (each.feed(held) if held else "") + each.end()
        return held


class AnswerFilter:
    """State of one answer."""

    def __init__(self, new_filter: NewFilter) -> None:
        self._new_filter = new_filter
        self._open: dict[Place, TextFilter] = {}
        self._frame: dict[str, Any] = {}

    def whole(self, raw: bytes) -> bytes:
        """An answer that came in one piece. `raw` is a JSON object."""
        answer = orjson.loads(raw)
        for choice in _choices(answer):
            self._drop_tokens(choice)
            for holder, key, _, is_json in _texts_of(choice, "message"):
                text = self._new_filter(is_json)
                holder[key] = text.feed(holder[key]) + text.end()
        return orjson.dumps(answer)

    def events(self, event: bytes) -> list[bytes]:
        """The events that go on for `event`: none while all its text is held, two where held text goes first.

        Raises:
            StreamBroken: the event is not what a stream of an answer consists of.
        """
        data = data_of(event)
        if not data:
            return [event]
        if data == b"[DONE]":
            return [*self.rest(), event]
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise StreamBroken("A backend sent an event that is not JSON.") from None
        if not isinstance(chunk, dict) or not (choices := _choices(chunk)):
            return [event]
        self._frame = {name: chunk[name] for name in ("id", "object", "created", "model") if name in chunk}
        emptied = [self._filter(choice) for choice in choices]
        first = [e for choice in choices if choice.get("finish_reason") is not None for e in self._ended(choice)]
        if all(emptied) and chunk.get("usage") is None:
            return first
        return [*first, _event(chunk)]

    def rest(self) -> list[bytes]:
        """Events with all text that is still held back."""
        return [event for index in {place[0] for place in self._open} for event in self._flushed(index)]

    def _filter(self, choice: dict[str, Any]) -> bool:
        """Filter the texts of one choice of a chunk; whether nothing of it is left to say."""
        index = choice.get("index", 0)
        self._drop_tokens(choice)
        held = False
        for holder, key, place, is_json in _texts_of(choice, "delta"):
            text = self._open.get((index, *place))
            if text is None:
                text = self._open[index, *place] = self._new_filter(is_json)
            piece: str = holder[key]
            holder[key] = text.feed(piece)
            held = held or bool(piece and not holder[key])
        return held and choice.get("finish_reason") is None and not _says_anything(choice)

    def _drop_tokens(self, choice: dict[str, Any]) -> None:
        if "logprobs" in choice and not self._new_filter.keeps_tokens:
            choice["logprobs"] = None

    def _ended(self, choice: dict[str, Any]) -> list[bytes]:
        """Events that must go before a choice's last chunk; its own text goes with them, to stay in order."""
        index = choice.get("index", 0)
        for holder, key, place, _ in _texts_of(choice, "delta"):
            holder[key] += self._open.pop((index, *place)).end()
        return self._flushed(index)

    def _flushed(self, index: Any) -> list[bytes]:
        places = [place for place in self._open if place[0] == index]
        texts = [(place, self._open.pop(place).end()) for place in places]
        return [_event({**self._frame, "choices": [_choice_of(place, held)]}) for place, held in texts if held]


def json_written(value: str) -> str:
    """A value inside a JSON string."""
    return json.dumps(value, ensure_ascii=False)[1:-1]


def as_it_is(value: str) -> str:
    """A value in plain text."""
    return value


def _choices(answer: MutableMapping[str, Any]) -> list[dict[str, Any]]:
    choices = answer.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _texts_of(choice: dict[str, Any], inner: str) -> Iterator[tuple[dict[str, Any], str, Place, bool]]:
    """Each text of a choice: its container, its key there, its place within the choice, whether it is JSON."""
    message = choice.get(inner)
    for holder in (choice, message):
        if isinstance(holder, dict):
            for key in _TEXTS:
                if isinstance(holder.get(key), str):
                    yield holder, key, (key,), False
    if not isinstance(message, dict):
        return
    calls = message.get("tool_calls")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict):
            at = call.get("index", number)
            yield from _text_at(call, "function", "arguments", ("tool_calls", at, "function", "arguments"))
            yield from _text_at(call, "custom", "input", ("tool_calls", at, "custom", "input"))
    yield from _text_at(message, "function_call", "arguments", ("function_call",))


def _text_at(
    holder: dict[str, Any], name: str, key: str, place: Place
) -> Iterator[tuple[dict[str, Any], str, Place, bool]]:
    """What a call is given: arguments, which are JSON, or the input of a custom tool, which is any text."""
    inner = holder.get(name)
    if isinstance(inner, dict) and isinstance(inner.get(key), str):
        yield inner, key, place, key == "arguments"


def _says_anything(choice: dict[str, Any]) -> bool:
    """Whether a choice whose texts are empty still carries something: a role, a call's name, log probabilities."""
    delta = choice.get("delta")
    if choice.get("logprobs") or not isinstance(delta, dict):
        return bool(choice.get("logprobs"))
    calls = delta.get("tool_calls")
    named = any(
        call.get("id") or (call.get("function") or call.get("custom") or {}).get("name")
        for call in calls or ()
        if isinstance(call, dict)
    )
    others = {name for name, value in delta.items() if value and name not in (*_TEXTS, "tool_calls", "function_call")}
    function = delta.get("function_call")
    return named or bool(others) or bool(isinstance(function, dict) and function.get("name"))


def _choice_of(place: Place, text: str) -> dict[str, Any]:
    """A choice of a chunk that carries `text` at `place` and nothing else."""
    index, field, *call = place
    if field == "text":
        return {"index": index, "text": text, "finish_reason": None}
    content: Any = text
    if field == "tool_calls":
        content = [{"index": call[0], call[1]: {call[2]: text}}]
    elif field == "function_call":
        content = {"arguments": text}
    return {"index": index, "delta": {field: content}, "finish_reason": None}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
