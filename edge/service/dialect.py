"""The API that a caller speaks: how its body becomes an OpenAI body, and how the answer is written.

Between the two every request goes the same way, whatever its dialect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from edge.service.assembly import Assembly
from edge.service.chunks import ChunkStream
from edge.service.closing import Closing
from edge.service.translation import EngineRequest
from shared.errors import IsthmusError
from shared.http.events import EVENT_STREAM_HEADERS
from shared.openai.envelope import error_event
from shared.openai.facts import Endpoint
from shared.openai.sse import KEEPALIVE


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in OpenAI's form. `limit_is_bound`: its output limit is the most that the caller wants, and no demand
    for room. `penalty_window_tokens` is how many of the last tokens count for penalties: 0 none, -1 all of the context,
    None as the engine has it. `at_once` is the whole answer to a request that asks only whether the model serves."""

    endpoint: Endpoint
    body: dict[str, Any]
    limit_is_bound: bool = False
    penalty_window_tokens: int | None = None
    at_once: bytes | None = None


class Chunks(Protocol):
    """Writes a streamed answer. `has_content` turns true with the first event that shows something."""

    @property
    def has_content(self) -> bool: ...

    @property
    def closing(self) -> Closing: ...

    def feed(self, event: bytes) -> list[bytes]:
        """What the client gets for one of the engine's events; raises IsthmusError as `ChunkStream.feed`."""


class Whole(Protocol):
    """Writes an answer in one piece."""

    @property
    def has_content(self) -> bool: ...

    @property
    def closing(self) -> Closing: ...

    def feed(self, event: bytes) -> None:
        """Take in one of the engine's events; raises IsthmusError as `Assembly.feed`."""

    def answer(self) -> bytes:
        """The whole answer; raises StreamBroken as `Assembly.answer`."""


class Dialect(Protocol):
    """One request's API. `route` names it in metrics; `typed`: its bodies must be stated to be JSON."""

    @property
    def route(self) -> str: ...

    @property
    def typed(self) -> bool: ...

    @property
    def stream_type(self) -> str: ...

    def read(self, body: dict[str, Any]) -> Asked:
        """What a body asks for.

        Raises:
            InvalidRequest: it is none of this API.
        """

    def chunks(self, request: EngineRequest) -> Chunks:
        """For an answer that is streamed."""

    def whole(self, request: EngineRequest) -> Whole:
        """For an answer in one piece."""

    def keepalive(self) -> bytes:
        """What may be sent at any time in a stream and says nothing."""

    def broken(self, error: IsthmusError) -> bytes:
        """The last that is sent in a stream which cannot go on."""


class OpenAI:
    """OpenAI's own API: bodies are what they are."""

    typed = True
    stream_type = EVENT_STREAM_HEADERS["Content-Type"]

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    @property
    def route(self) -> str:
        return self._endpoint.value

    def read(self, body: dict[str, Any]) -> Asked:
        return Asked(self._endpoint, body)

    def chunks(self, request: EngineRequest) -> ChunkStream:
        return ChunkStream(request)

    def whole(self, request: EngineRequest) -> Assembly:
        return Assembly(request)

    def keepalive(self) -> bytes:
        return KEEPALIVE

    def broken(self, error: IsthmusError) -> bytes:
        return error_event(error)
