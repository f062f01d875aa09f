"""Writes the JSON objects of Ollama's answers: pieces of a text, and the end with its figures, in nanoseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from edge.service.closing import Closing
from shared.clock import Clock

_NS_PER_MS = 1_000_000
_REASONS = {"tool_calls": "stop"}
"""OpenAI's finish reasons that have another word, or none, in Ollama's API."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one object says: text, thoughts, whole tool calls, log-probabilities."""

    text: str = ""
    thinking: str = ""
    calls: tuple[dict[str, Any], ...] = ()
    logprobs: tuple[dict[str, Any], ...] = ()


Shape = Callable[[Said], dict[str, Any]]


def as_message(said: Said) -> dict[str, Any]:
    """The fields of `/api/chat`."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.thinking:
        message["thinking"] = said.thinking
    if said.calls:
        message["tool_calls"] = said.calls
    return {"message": message}


def as_response(said: Said) -> dict[str, Any]:
    """The fields of `/api/generate`."""
    return {"response": said.text} | ({"thinking": said.thinking} if said.thinking else {})


def timestamp(unix_s: float) -> str:
    """A point in time as Ollama's clients read it."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")


class Voice:
    """One answer of `model`, to a request that came at `started_ms`."""

    def __init__(self, model: str, shape: Shape, clock: Clock, started_ms: int) -> None:
        self._model = model
        self._shape = shape
        self._clock = clock
        self._started_ms = started_ms

    def piece(self, said: Said) -> bytes:
        """One line of a stream."""
        return self._line(said, {"done": False})

    def end(self, said: Said, reason: str, closing: Closing | None = None) -> bytes:
        """The last line of a stream, or the whole answer; `closing` holds the engine's figures, if it worked."""
        done = {"done": True, "done_reason": _REASONS.get(reason, reason)}
        return self._line(said, done if closing is None else done | self._figures(closing))

    def _line(self, said: Said, done: dict[str, Any]) -> bytes:
        line = {"model": self._model, "created_at": timestamp(self._clock.unix_s()), **self._shape(said), **done}
        if said.logprobs:
            line["logprobs"] = said.logprobs
        return orjson.dumps(line) + b"\n"

    def _figures(self, closing: Closing) -> dict[str, int]:
        """`load_duration` is what was neither reading nor writing: waiting for a slot, loading an adapter."""
        usage = closing.usage or {}
        total_ms = float(self._clock.now_ms() - self._started_ms)
        read_ms = sum(timings.prefill_ms for timings in closing.timings)
        wrote_ms = sum(timings.decode_ms for timings in closing.timings)
        return {
            "total_duration": round(max(total_ms, read_ms + wrote_ms) * _NS_PER_MS),
            "load_duration": round(max(0.0, total_ms - read_ms - wrote_ms) * _NS_PER_MS),
            "prompt_eval_count": usage.get("prompt_tokens", 0),
            "prompt_eval_duration": round(read_ms * _NS_PER_MS),
            "eval_count": usage.get("completion_tokens", 0),
            "eval_duration": round(wrote_ms * _NS_PER_MS),
        }
