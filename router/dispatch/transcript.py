"""Keeps what a client was sent of a chat stream, and lets another backend go on from there under the same id.

Only plain text can be gone on with: one choice, no tool calls, no log probabilities, no grammar. Whatever else a
backend sends makes the transcript unfit, and the stream then ends where it broke.
"""

from __future__ import annotations

from typing import Any, Protocol

import orjson

from shared.openai.facts import LIMIT_FIELDS, Endpoint
from shared.openai.sse import data_of

MAX_TEXT_BYTES = 1024 * 1024
"""A longer answer is not held for another backend."""
_FRAME = ("id", "created", "model", "system_fingerprint")
_UNFIT_FIELDS = ("tools", "functions", "response_format", "logprobs", "audio", "modalities", "guided_json", "lora")
_UNEQUAL_FIELDS = (
    "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "min_tokens", "min_p",
)  # fmt: skip
"""What counts tokens of an answer counts otherwise once they stand in the prompt."""


class EventFilter(Protocol):
    """Sees whole events on their way to the client."""

    def events(self, event: bytes) -> list[bytes]:
        """What goes on for `event`."""

    def rest(self) -> list[bytes]:
        """What was held back, at the end."""


def can_continue(endpoint: Endpoint, body: dict[str, Any]) -> bool:
    """Whether the answer to `body` can be gone on with by another backend at all."""
    return (
        endpoint is Endpoint.CHAT
        and body.get("stream") is True
        and body.get("n") in (None, 1)
        and not any(body.get(name) for name in _UNFIT_FIELDS)
    )


def is_greedy(body: dict[str, Any]) -> bool:
    """Whether the next token depends on the text alone, so that two engines of one kind give the same."""
    chooses_best = body.get("temperature") == 0 or body.get("top_k") == 1
    return chooses_best and not any(body.get(name) for name in _UNEQUAL_FIELDS)


class Transcript:
    """Text, frame and tokens of one answer; `fit` says whether it can be gone on with."""

    def __init__(self) -> None:
        self.fit = True
        self.frame: dict[str, Any] = {}
        self.tokens = 0
        self._pieces: list[str] = []
        self._bytes = 0

    @property
    def text(self) -> str:
        """What the client has."""
        return "".join(self._pieces)

    def events(self, event: bytes) -> list[bytes]:
        data = data_of(event)
        if data and data != b"[DONE]":
            self.note(orjson.loads(data))
        return [event]

    def rest(self) -> list[bytes]:
        return []

    def note(self, chunk: dict[str, Any]) -> None:
        """Take one chunk that goes to the client."""
        if not self.frame:
            self.frame = {name: chunk[name] for name in _FRAME if name in chunk}
        choices = chunk.get("choices") or []
        if not isinstance(choices, list) or len(choices) > 1:
            self.fit = False
            return
        for choice in choices:
            delta = (choice.get("delta") or {}) if isinstance(choice, dict) else None
            if not isinstance(delta, dict) or not isinstance(delta.get("content") or "", str):
                self.fit = False
                continue
            if choice.get("finish_reason") is not None or choice.get("index", 0) != 0:
                self.fit = False
            if any(value for name, value in delta.items() if name not in ("role", "content")):
                self.fit = False
            if delta.get("content"):
                self._say(delta["content"])

    def _say(self, piece: str) -> None:
        self._pieces.append(piece)
        self._bytes += len(piece)
        self.tokens += 1
        self.fit = self.fit and self._bytes <= MAX_TEXT_BYTES

    def continuation(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The request that goes on: the text so far as the beginning of the assistant's turn. None where it cannot."""
        if not self.fit or not self._pieces:
            return None
        messages = list(body["messages"])
        before = ""
        if body.get("continue_final_message") is True:
            before = messages.pop()["content"]
            if not isinstance(before, str):
                return None
        messages.append({"role": "assistant", "content": before + self.text})
        more = {**body, "messages": messages, "continue_final_message": True, "add_generation_prompt": False}
        for name in LIMIT_FIELDS[Endpoint.CHAT]:
            if more.get(name) is not None:
                more[name] -= self.tokens
                if more[name] < 1:
                    return None
        return more


class Continuation:
    """Rewrites the events of the backend that goes on, so that they read as those of the one that broke."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._before_tokens = transcript.tokens

    def events(self, event: bytes) -> list[bytes]:
        data = data_of(event)
        if not data or data == b"[DONE]":
            return [event]
        chunk = orjson.loads(data)
        opens = False
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(delta, dict) and delta.pop("role", None) is not None:
                opens = not delta.get("content") and choice.get("finish_reason") is None
        if opens and chunk.get("usage") is None:
            return []
        chunk |= self._transcript.frame
        self._count(chunk.get("usage"))
        self._transcript.note(chunk)
        return [b"data: " + orjson.dumps(chunk) + b"\n\n"]

    def rest(self) -> list[bytes]:
        return []

    def _count(self, usage: Any) -> None:
        """The tokens that were in the prompt this time are the answer's."""
        if not isinstance(usage, dict):
            return
        prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if type(prompt) is int and type(completion) is int:
            usage["prompt_tokens"] = max(0, prompt - self._before_tokens)
            usage["completion_tokens"] = completion + self._before_tokens
