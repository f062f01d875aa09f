"""A real Redis server on a free loopback port for the length of a test, and a proxy that delays what it says."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Self

_START_LIMIT_S = 10.0


def binary() -> str | None:
    """The Redis server program, if this machine has one."""
    return shutil.which("redis-server")


class RedisServer:
    """One process without persistence; `freeze` stops it from answering while its port still accepts."""

    def __init__(self) -> None:
        self.port = _free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="isthmus-redis-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        program = binary()
        if program is None:
            raise FileNotFoundError("redis-server")
        self._process = subprocess.Popen(  # noqa: S603 - a fixed program with fixed arguments
            [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
             "--dir", self._folder.name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                if probe.recv(7) == b"+PONG\r\n":
                    return
            time.sleep(0.02)
        self.stop()
        raise TimeoutError("redis-server did not start")

    def freeze(self) -> None:
        """Stop the process: it accepts connections and answers nothing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process and remove its folder; safe to call twice."""
        if self._process is not None:
            self._process.kill()  # also ends a frozen process
            self._process.wait()
            self._process = None
        self._folder.cleanup()


class DelayProxy:
    """Forwards TCP to `port` and holds every answer back for `delay_s`."""

    def __init__(self, port: int, *, delay_s: float) -> None:
        self.delay_s = delay_s
        self.accepted = 0
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        if self._server is None:
            raise RuntimeError("the proxy is not running")
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        for task in (
            asyncio.create_task(self._pump(reader, up_writer, 0.0)),
            asyncio.create_task(self._pump(up_reader, writer, self.delay_s)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
        try:
            while chunk := await reader.read(65536):
                if delay_s:
                    await asyncio.sleep(delay_s)
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
