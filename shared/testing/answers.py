"""What a scripted backend says: bytes with delays, and how the answer ends; good and broken ones ready made."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import orjson

from shared.openai.sse import DONE

MODEL = "smollm2-135m-instruct"
JSON = {"Content-Type": "application/json"}
EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
ERROR_EVENT = b'data: {"error": {"message": "the engine failed", "type": "server_error", "code": "engine_error"}}\n\n'


class End(Enum):
    """What happens after the last write."""

    CLEAN = "clean"
    """The body is terminated as HTTP wants it."""
    CUT = "cut"
    """The connection closes (FIN) in the middle of the body."""
    RESET = "reset"
    """The connection is reset (RST)."""
    STALL = "stall"
    """Silence until the client leaves or the backend stops."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write to the socket after `after_s` of waiting; `tokens` says how many tokens of an answer it carries."""

    data: bytes
    after_s: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """One scripted answer. `status` None means that the answer ends before a status line was sent."""

    status: int | None = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_after_s: float = 0.0
    writes: tuple[Write, ...] = ()
    end: End = End.CLEAN

    @property
    def body(self) -> bytes:
        """All bytes that a client should see."""
        return b"".join(write.data for write in self.writes)


def chunk(
    *, content: str | None = None, role: str | None = None, finish: str | None = None, usage: int | None = None
) -> bytes:
    """One `chat.completion.chunk` event; `usage` adds a usage object with that many completion tokens."""
    delta = {name: value for name, value in (("role", role), ("content", content)) if value is not None}
    value: dict[str, Any] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [] if usage is not None else [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    if usage is not None:
        value["usage"] = _usage(usage)
    return b"data: " + orjson.dumps(value) + b"\n\n"


def stream(*texts: str, gap_s: float = 0.0, done: bool = True) -> Answer:
    """A whole event stream with one token a text: role, contents `gap_s` apart, finish reason, usage, `[DONE]`."""
    opened = broken_stream(*texts, gap_s=gap_s, end=End.CLEAN)
    closing = [Write(chunk(finish="stop")), Write(chunk(usage=len(texts)))] + ([Write(DONE)] if done else [])
    return replace(opened, writes=(*opened.writes, *closing))


def broken_stream(
    *texts: str, gap_s: float = 0.0, end: End = End.RESET, error: bool = False, done: bool = False
) -> Answer:
    """A stream that stops after its contents, without a finish reason: then an error event, `[DONE]`, and `end`."""
    writes = [Write(chunk(role="assistant", content=""))]
    writes += [Write(chunk(content=text), after_s=gap_s, tokens=1) for text in texts]
    writes += [Write(ERROR_EVENT)] if error else []
    writes += [Write(DONE)] if done else []
    return Answer(headers=EVENT_STREAM, writes=tuple(writes), end=end)


def completion(text: str = "Paris.", *, after_s: float = 0.0) -> Answer:
    """A whole answer in one JSON body."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    value = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [choice],
        "usage": _usage(len(text.split())),
    }
    return Answer(headers=JSON, headers_after_s=after_s, writes=(Write(orjson.dumps(value), tokens=1),))


def failure(status: int, code: str = "backend_said_no", headers: Mapping[str, str] | None = None) -> Answer:
    """An error in the OpenAI envelope."""
    body = orjson.dumps({"error": {"message": "refused", "type": "server_error", "param": None, "code": code}})
    return Answer(status=status, headers={**JSON, **(headers or {})}, writes=(Write(body),))


def empty() -> Answer:
    """Status 200, a JSON content type and not one byte of body."""
    return Answer(headers=JSON)


def silence(*, headers_sent: bool = False) -> Answer:
    """No status line ever; or a status line and then nothing."""
    return Answer(status=200 if headers_sent else None, headers=EVENT_STREAM, end=End.STALL)


def hang_up(end: End = End.RESET) -> Answer:
    """The connection ends after the request was read and before a status line."""
    return Answer(status=None, end=end)


def byte_by_byte(answer: Answer) -> Answer:
    """The same bytes, one a write."""
    return replace(answer, writes=tuple(_bytes_of(answer)))


def cut_at(answer: Answer, *offsets: int) -> Answer:
    """The same body in writes that end at `offsets`, so that a cut can fall inside a character or an event."""
    edges = (0, *sorted(offsets), len(answer.body))
    pieces = [Write(answer.body[start:stop]) for start, stop in itertools.pairwise(edges)]
    return replace(answer, writes=tuple(pieces))


def _bytes_of(answer: Answer) -> Iterator[Write]:
    for write in answer.writes:
        for at in range(len(write.data)):
            last = at == len(write.data) - 1
            yield Write(
                write.data[at : at + 1],
                after_s=write.after_s if at == 0 else 0.0,
                tokens=write.tokens if last else 0,
            )


def _usage(completion_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 7, "completion_tokens": completion_tokens, "total_tokens": 7 + completion_tokens}
