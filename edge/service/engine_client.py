"""Speaks HTTP to the engine over its Unix socket and gives back whole events; the engine's faults become our errors.

An engine that is swapped while a request runs keeps that request: its process and the session to it live until then.

Leaving a stream closes its connection, which is what makes the engine stop and free the slot.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from edge.runtime.port import AppliedAdapter, ChatTemplate, Engine, EngineConnection
from edge.service import engine_errors
from edge.service.translation import EngineRequest
from shared.errors import BackendStatus, BackendTimeout, BackendUnreachable, StreamBroken
from shared.openai.sse import DONE, EventCutter

_CONNECT_S = 2.0
_ASK_S = 30.0
_COUNTED = ("messages", "tools", "continue_final_message", "add_generation_prompt")
"""What decides over the prompt of a chat."""
_EMBED_ROUTE = "/v1/embeddings"
_COUNT_ROUTE = "/v1/chat/completions/input_tokens"


class EngineClient:
    """Client of whichever engine process serves now; follows it across restarts and swaps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._current: _Session | None = None
        self._sessions: set[_Session] = set()

    async def close(self) -> None:
        """Close what is open. Safe to call twice."""
        sessions, self._sessions, self._current = self._sessions, set(), None
        for session in sessions:
            await session.http.close()

    @contextlib.asynccontextmanager
    async def stream(self, request: EngineRequest) -> AsyncIterator[AsyncIterator[bytes]]:
        """Whole events of the answer, `[DONE]` last; leaving the block stops the engine's work on it.

        Raises:
            NotReady: the engine does not serve now, or has an adapter of the request no longer.
            ClientError: the engine finds the request at fault.
            BackendError: the engine failed, or its stream ended early.
        """
        async with (
            self._post(request.endpoint.value, request.body, applied=request.applied) as response,
            contextlib.aclosing(_events(response, self._engine.heard)) as events,
        ):
            yield events

    def doubt(self) -> None:
        """An answer was waited for in vain: have the engine checked."""
        self._engine.doubt()

    async def tokenize(self, text: str, *, control: bool) -> list[tuple[int, str]]:
        """Ids and spellings of `text`; a piece that is not UTF-8 by itself has an empty spelling."""
        body = {"content": text, "parse_special": control, "with_pieces": True}
        answer = await self._ask("/tokenize", body)
        pieces = answer["tokens"]
        return [(piece["id"], piece["piece"] if isinstance(piece["piece"], str) else "") for piece in pieces]

    async def count_chat(self, body: dict[str, Any]) -> int:
        """Tokens of a chat body after its template."""
        wanted: dict[str, Any] = {name: body[name] for name in _COUNTED if name in body}
        return int((await self._ask(_COUNT_ROUTE, wanted))["input_tokens"])

    async def count_text(self, text: str) -> int:
        """Tokens of a raw prompt."""
        body = {"content": text, "parse_special": True, "add_special": True}
        return len((await self._ask("/tokenize", body))["tokens"])

    async def text_ids(self, text: str, *, bare: bool = False) -> list[int]:
        """Token ids of `text` as a whole input: with what the model puts around each, unless they are to be `bare`,
        and spelled control tokens as the text that they are."""
        body = {"content": text, "parse_special": False, "add_special": not bare}
        return [int(token) for token in (await self._ask("/tokenize", body))["tokens"]]

    async def embed(self, ids: list[int], encoding: str) -> Any:
        """The vector of one text of these tokens, of length 1: a list of floats, or base64 of 32-bit floats. A whole
        context takes a slow device minutes, so how long is too long is the caller's to say."""
        body = {"input": ids, "encoding_format": encoding}
        answer = await self._ask(_EMBED_ROUTE, body, applied=(), timeout_s=None)
        self._engine.heard()
        try:
            return answer["data"][0]["embedding"]
        except (KeyError, IndexError, TypeError):
            raise BackendStatus("The engine's answer holds no vector.", backend_status=200) from None

    async def template(self) -> ChatTemplate:
        """What the engine found out about the model's chat template."""
        caps = (await self._ask("/props", None)).get("chat_template_caps")
        if not isinstance(caps, dict):
            return ChatTemplate()
        # Calls count too: without them, what the model called would be missing from the conversation.
        tools = caps.get("supports_tools") is True and caps.get("supports_tool_calls") is True
        return ChatTemplate(tools=tools, system_role=caps.get("supports_system_role") is not False)

    async def metrics(self, limit_s: float) -> bytes:
        """The engine's metrics as it writes them.

        Raises:
            IsthmusError: no engine runs, it has none, or it says nothing within `limit_s`.
        """
        async with self._post("/metrics", None, timeout_s=limit_s) as response:
            try:
                return await response.read()
            except (TimeoutError, aiohttp.ClientError, OSError):
                raise BackendUnreachable("The engine went away before it answered.") from None

    async def _ask(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        applied: tuple[AppliedAdapter, ...] | None = None,
        timeout_s: float | None = _ASK_S,
    ) -> dict[str, Any]:
        async with self._post(path, body, timeout_s=timeout_s, applied=applied) as response:
            try:
                answer = orjson.loads(await response.read())
            except orjson.JSONDecodeError:
                raise BackendStatus("The engine's answer is not JSON.", backend_status=response.status) from None
            except (aiohttp.ClientError, OSError):
                raise BackendUnreachable("The engine went away before it answered.") from None
        return answer if isinstance(answer, dict) else {}

    @contextlib.asynccontextmanager
    async def _post(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        timeout_s: float | None = None,
        applied: tuple[AppliedAdapter, ...] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """`applied` are the adapters of a generation; None for what none can have."""
        with self._engine.using() as connection:
            # A process that has loaded none can mix none up, and another kind of engine does not know the field.
            if body is not None and applied is not None and (applied or connection.adapters):
                # Numbered as this very process numbers them: another one may come with the next swap.
                body = {**body, "lora": connection.lora(applied)}
            async with self._session_to(connection) as http:
                response = await _open(http, connection, path, body, timeout_s)
                # What fails inside the block is the caller's (a client that left, say): nothing is translated there.
                try:
                    yield response
                finally:
                    response.close()

    @contextlib.asynccontextmanager
    async def _session_to(self, connection: EngineConnection) -> AsyncIterator[aiohttp.ClientSession]:
        """A session to that process; one that another process has taken over from is closed by its last request."""
        session = self._current
        if session is None or session.connection != connection:
            session = self._current = _Session(connection, _session(connection.socket_path))
            self._sessions.add(session)
            await self._close_unused()
        session.users += 1
        try:
            yield session.http
        finally:
            session.users -= 1
            await self._close_unused()

    async def _close_unused(self) -> None:
        unused = {session for session in self._sessions if session is not self._current and not session.users}
        self._sessions -= unused
        for session in unused:
            await session.http.close()


@dataclass(slots=True, eq=False)
class _Session:
    """An HTTP session to one engine process, and how many requests use it now."""

    connection: EngineConnection
    http: aiohttp.ClientSession
    users: int = 0


def _session(path: Path | None) -> aiohttp.ClientSession:
    # One connection a request: a pooled one could belong to a process that is gone.
    connector = (
        aiohttp.UnixConnector(path=str(path), force_close=True, limit=0)
        if path is not None
        else aiohttp.TCPConnector(force_close=True, limit=0)
    )
    return aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False)


async def _open(
    http: aiohttp.ClientSession,
    connection: EngineConnection,
    path: str,
    body: Mapping[str, Any] | None,
    timeout_s: float | None,
) -> aiohttp.ClientResponse:
    timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S)
    headers = {"Content-Type": "application/json", **connection.headers}
    try:
        response = await http.request(
            "GET" if body is None else "POST",
            connection.base_url + path,
            # A file object: aiohttp writes it in parts, so a body of megabytes does not hold up the loop.
            data=None if body is None else io.BytesIO(orjson.dumps(body)),
            headers=headers,
            timeout=timeout,
        )
        if response.status == 200:
            return response
        raw = await response.read()
    except TimeoutError:
        raise BackendTimeout("The engine does not answer.", phase="connect") from None
    except (aiohttp.ClientError, OSError):
        raise BackendUnreachable("The engine went away before it answered.") from None
    raise engine_errors.of_response(response.status, raw, path=path)


async def _events(response: aiohttp.ClientResponse, heard: Callable[[], None]) -> AsyncGenerator[bytes]:
    cutter = EventCutter()
    try:
        async for chunk in response.content.iter_any():
            if not chunk.startswith(b":"):  # its pings go on while it computes nothing
                heard()
            for event in cutter.feed(chunk):
                yield event
                if event == DONE:
                    return
    except (aiohttp.ClientError, OSError):
        raise StreamBroken("The engine went away in the middle of the answer.") from None
    raise StreamBroken("The engine ended the answer without its end marker.")
