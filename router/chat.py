"""One conversation with a router over its OpenAI API: streams an answer and keeps what the headers said about it."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from router.reach import opened, unanswered
from shared.errors import BackendStatus, BackendUnreachable, InvalidRequest, IsthmusError, StreamBroken
from shared.openai.sse import EventCutter

ROUTES = ("auto", "edge", "cloud")
CLASSES = ("as-scanned", "public", "personal", "secret")
_SILENCE_S = 120
_ERROR_BYTES = 65_536


@dataclass(slots=True)
class Answered:
    """One answer: where it came from and how fast. Times are milliseconds; None is not known."""

    text: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    first_ms: float | None = None
    total_ms: float | None = None
    tokens: int | None = None
    finish: str | None = None

    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        named = {name: self.headers.get(f"x-isthmus-{name}") for name in ("tier", "backend", "class", "reason")}
        return {
            **named,
            "decision_id": self.headers.get("x-isthmus-decision-id"),
            "first_token_ms": _rounded(self.first_ms),
            "total_ms": _rounded(self.total_ms),
            "completion_tokens": self.tokens,
            "finish_reason": self.finish,
        }


class Chat:
    """The turns so far, and the switches for the next one."""

    def __init__(
        self,
        base_url: str,
        key: str | None,
        tls: ssl.SSLContext | None,
        model: str,
        *,
        max_tokens: int,
        temperature: float,
    ) -> None:
        """Raises: InvalidRequest: the URL is none."""
        if not base_url.startswith(("http://", "https://")):
            raise InvalidRequest("The router's URL must start with http:// or https://.", param="url")
        self.model = model
        self.route = "auto"
        self.privacy = "as-scanned"
        self.turns: list[dict[str, str]] = []
        self.last: Answered | None = None
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._tls = tls
        self._sampling = {"max_tokens": max_tokens, "temperature": temperature}

    def say(self, text: str, hear: Callable[[str], None]) -> Answered:
        """Send `text` after what was said before; `hear` gets each piece of the answer as it comes. A turn that fails
        is not remembered.

        Raises:
            BackendStatus: the router refuses; `last` has what its headers said. BackendUnreachable: it does not answer.
            StreamBroken: the answer broke off.
        """
        turns = [*self.turns, {"role": "user", "content": text}]
        answered = self.last = Answered()
        began_s = time.monotonic()
        try:
            with opened(self._request(turns), timeout_s=_SILENCE_S, tls=self._tls) as stream:
                answered.headers = {name.lower(): value for name, value in stream.headers.items()}
                cutter, done = EventCutter(), False
                while not done and (chunk := stream.read1(65_536)):
                    for event in cutter.feed(chunk):
                        done = self._take(event, answered, hear, began_s) or done
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error, answered) from None
        except OSError as error:
            raise BackendUnreachable(f"{unanswered(self._base_url, error)} Start one with: isthmus up") from None
        if not done:
            raise StreamBroken("The answer broke off.")
        answered.total_ms = (time.monotonic() - began_s) * 1000
        self.turns = [*turns, {"role": "assistant", "content": answered.text}]
        return answered

    def _request(self, turns: list[dict[str, str]]) -> urllib.request.Request:
        body: dict[str, Any] = {"model": self.model, "messages": turns, "stream": True, **self._sampling}
        body["stream_options"] = {"include_usage": True}
        headers = {"Content-Type": "application/json", "X-Isthmus-Route": self.route}
        if self.privacy != "as-scanned":
            headers["X-Isthmus-Privacy"] = self.privacy
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            data = orjson.dumps(body)
        except TypeError:
            raise InvalidRequest("The text is not valid UTF-8.", param="text") from None
        return urllib.request.Request(f"{self._base_url}/v1/chat/completions", data=data, headers=headers)  # noqa: S310

    def _take(self, event: bytes, answered: Answered, hear: Callable[[str], None], began_s: float) -> bool:
        """Whether that was the end."""
        data = b"".join(line[6:] for line in event.splitlines() if line.startswith(b"data: "))
        if data == b"[DONE]":
            return True
        if not data:
            return False
        chunk = orjson.loads(data)
        if "error" in chunk:
            raise StreamBroken(f"The answer broke off: {chunk['error'].get('message', 'no reason was given')}")
        for choice in chunk.get("choices") or ():
            answered.finish = choice.get("finish_reason") or answered.finish
            piece = (choice.get("delta") or {}).get("content")
            if piece:
                answered.first_ms = answered.first_ms or (time.monotonic() - began_s) * 1000
                answered.text += piece
                hear(piece)
        usage = chunk.get("usage") or {}
        answered.tokens = usage.get("completion_tokens", answered.tokens)
        return False

    def _refused(self, error: urllib.error.HTTPError, answered: Answered) -> IsthmusError:
        answered.headers = {name.lower(): value for name, value in error.headers.items()}
        try:
            told = orjson.loads(error.read(_ERROR_BYTES))["error"]["message"]
        except (orjson.JSONDecodeError, KeyError, TypeError, OSError):
            told = "no reason was given."
        return BackendStatus(f"The router answered {error.code}: {told}", backend_status=error.code)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
