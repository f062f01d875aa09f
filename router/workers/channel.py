"""One connection between a worker and its parent, on which either side asks and the other answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from shared.errors import StateUnavailable

_LENGTH = struct.Struct(">I")
_MOST_BYTES = 256 * 1024 * 1024
_LIMIT_S = 10.0
Handler = Callable[[Any], Awaitable[Any]]


class Refused(Exception):
    """The other side could not do it; `errno` is set where its disk refused."""

    def __init__(self, errno: int | None) -> None:
        super().__init__(errno)
        self.errno = errno


class Channel:
    """Values are JSON. Answers may come in another order than the questions."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handlers: Mapping[str, Handler]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handlers = handlers
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._open = True

    async def ask(self, what: str, value: Any = None, *, limit_s: float = _LIMIT_S) -> Any:
        """The other side's answer.

        Raises:
            StateUnavailable: it is gone, or does not answer within `limit_s`.
            Refused: it could not do it.
        """
        if not self._open:
            raise StateUnavailable("The parent of this worker is gone.")
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"ask": what, "number": number, "value": value})
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            raise StateUnavailable("The parent of this worker did not answer in time.") from None
        finally:
            self._waiting.pop(number, None)

    async def run(self) -> None:
        """Read until the other side is gone."""
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                if length > _MOST_BYTES:
                    return
                self._take(orjson.loads(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._open = False
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(StateUnavailable("The parent of this worker is gone."))
            self.close()

    def close(self) -> None:
        """End the connection."""
        self._open = False
        for task in self._answering:
            task.cancel()
        self._writer.close()

    def _take(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            task = asyncio.create_task(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        waiting = self._waiting.get(message["number"])
        if waiting is None or waiting.done():
            return
        if "refused" in message:
            waiting.set_exception(Refused(message["refused"]))
        else:
            waiting.set_result(message["value"])

    async def _answer(self, message: dict[str, Any]) -> None:
        try:
            value = await self._handlers[message["ask"]](message["value"])
        except OSError as error:
            self._send({"number": message["number"], "refused": error.errno})
        else:
            self._send({"number": message["number"], "value": value})

    def _send(self, message: dict[str, Any]) -> None:
        raw = orjson.dumps(message)
        with contextlib.suppress(ConnectionError):
            self._writer.write(_LENGTH.pack(len(raw)) + raw)
