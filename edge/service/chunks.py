"""Turns the engine's events into the client's: token events pass as bytes, progress is dropped, the end is put right.

Usage goes out in one chunk of its own before `[DONE]`, and only when it was asked for, however many choices ran.
"""

from __future__ import annotations

from typing import Any

import orjson

from edge.service import engine_errors
from edge.service.closing import Closing, is_closing
from edge.service.logprobs import LogprobShaper
from edge.service.tools.reader import CallShaper, says_nothing
from edge.service.translation import EngineRequest
from shared.errors import StreamBroken
from shared.openai.facts import Endpoint
from shared.openai.sse import DONE, EventKind, read_event

_PROGRESS = b'"prompt_progress":'
_HEAD = ("id", "object", "created", "model", "system_fingerprint")


class ChunkStream:
    """Shapes one streamed answer. `has_content` turns true with the first event that shows something."""

    def __init__(self, request: EngineRequest) -> None:
        chat = request.endpoint is Endpoint.CHAT
        self._include_usage = request.include_usage
        self._sequences = request.slots
        self._finished = 0
        self._logprobs = (
            LogprobShaper(chat=chat, top=request.top_logprobs) if request.top_logprobs is not None else None
        )
        self._head: dict[str, Any] = {}
        self._renamed = _names(request)
        self._calls = CallShaper(must_call=request.must_call) if request.reads_calls else None
        self.closing = Closing(prompts=request.prompts)
        self.has_content = False
        self.done = False

    def feed(self, event: bytes) -> list[bytes]:
        """The client's events for one of the engine's.

        Raises:
            IsthmusError: the engine reports a failure, or ends the answer before every choice has finished.
        """
        if _PROGRESS in event:
            return []
        facts = read_event(event)
        if facts.kind is EventKind.COMMENT:
            return []
        if facts.kind is EventKind.ERROR:
            raise engine_errors.of_event(event)
        if facts.kind is EventKind.DONE:
            return self._end()
        if self._renamed is not None:
            event = event.replace(*self._renamed, 1)
        self._finished += facts.finished
        if self._calls is None and self._logprobs is None and not is_closing(event):
            self.has_content = self.has_content or facts.kind is EventKind.CONTENT
            if facts.finished:
                self.closing.finish(orjson.loads(event[5:]))
            return [event]
        return self._rewritten(orjson.loads(event[5:]), closing=is_closing(event))

    def _rewritten(self, chunk: dict[str, Any], *, closing: bool) -> list[bytes]:
        if closing:
            self.closing.take(chunk)
            self._head = {name: chunk[name] for name in _HEAD if name in chunk}
            if not chunk.get("choices"):
                return []
        if self._logprobs is not None:
            self._logprobs.rewrite(chunk)
        if self._calls is not None:
            self._calls.rewrite(chunk)
        self.closing.finish(chunk)
        if self._calls is not None and says_nothing(chunk):
            return []
        event = _event(chunk)
        self.has_content = self.has_content or read_event(event).kind is EventKind.CONTENT
        return [event]

    def _end(self) -> list[bytes]:
        if self._finished < self._sequences:
            raise StreamBroken("The engine ended the answer before every choice had finished.")
        self.done = True
        usage = self.closing.usage
        if self._include_usage and usage is not None:
            return [_event({**self._head, "choices": [], "usage": usage}), DONE]
        return [DONE]


def _names(request: EngineRequest) -> tuple[bytes, bytes] | None:
    """The engine's name of the model as it stands in an event, and the caller's where that is another.

    It is structural: inside a JSON string its quotes would be escaped.
    """
    served = request.body["model"]
    if request.model in ("", served):
        return None
    served_name, asked_name = (b'"model":' + orjson.dumps(name) for name in (served, request.model))
    return served_name, asked_name


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"
