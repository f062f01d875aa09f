"""A real Redis server on a free loopback port for the length of a test, and a proxy that delays what it says."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from shared.state.address import RedisTls

_START_LIMIT_S = 10.0


def binary() -> str | None:
    """The Redis server program, if this machine has one."""
    return shutil.which("redis-server")


class RedisServer:
    """One process without persistence; `freeze` stops it from answering while its port still accepts. `options` are
    further words of its command line; with `tls` it listens over TLS alone, and that is how it is probed."""

    def __init__(self, *options: str, tls: RedisTls | None = None) -> None:
        self.port = _free_port()
        self._options = options
        self._tls = tls
        self._folder = tempfile.TemporaryDirectory(prefix="isthmus-redis-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        self.stop()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start_as_sentinel(self, config: Path) -> None:
        """Start as a sentinel, which keeps what it knows in `config`."""
        self._start([str(config), "--port", str(self.port), "--bind", "127.0.0.1", "--sentinel"])

    def start(self) -> None:
        self._start(
            [*self._listening(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
             "--repl-diskless-sync-delay", "0", "--dir", self._folder.name, *self._options]
        )  # fmt: skip

    def _start(self, arguments: list[str]) -> None:
        program = binary()
        if program is None:
            raise FileNotFoundError("redis-server")
        self._process = subprocess.Popen(  # noqa: S603 - a fixed program with fixed arguments
            [program, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), self.connected() as probe:
                probe.sendall(b"PING\r\n")
                if probe.recv(64).startswith((b"+PONG", b"-NOAUTH")):
                    return
            time.sleep(0.02)
        self.stop()
        raise TimeoutError("redis-server did not start")

    def restart(self, *options: str) -> None:
        """End the process, and start one on the same port that remembers nothing but what was saved; `options` are
        further words of its command line."""
        self._end()
        self._options = (*self._options, *options)
        self.start()

    def command(self, *words: str) -> bytes:
        """The first bytes of the answer to one command."""
        with self.connected() as connection:
            connection.sendall(b"*%d\r\n" % len(words))
            for word in words:
                connection.sendall(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()))
            return connection.recv(65536)

    def connected(self) -> socket.socket:
        """A connection to it."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=2)
        if self._tls is None:
            return plain
        context = ssl.create_default_context(cafile=self._tls.ca_file)
        if self._tls.cert_file is not None:
            context.load_cert_chain(self._tls.cert_file, self._tls.key_file)
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

    def _listening(self) -> tuple[str, ...]:
        port = str(self.port)
        return ("--port", port) if self._tls is None else ("--port", "0", "--tls-port", port)

    def freeze(self) -> None:
        """Stop the process: it accepts connections and answers nothing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process and remove its folder; safe to call twice."""
        self._end()
        self._folder.cleanup()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()  # also ends a frozen process
            self._process.wait()
            self._process = None


class SentinelGroup:
    """A master, a replica and three sentinels that watch them."""

    def __enter__(self) -> Self:
        self.master, self.replica = RedisServer(), RedisServer()
        self.master.start()
        self.replica.start()
        self.replica.command("REPLICAOF", "127.0.0.1", str(self.master.port))
        self._folder = tempfile.TemporaryDirectory(prefix="isthmus-sentinel-")
        self.sentinels = [self._sentinel(n) for n in range(3)]
        self.wait_replicated()
        _await(lambda: all(b"num-slaves" in s.command("SENTINEL", "MASTERS") for s in self.sentinels))
        _await(lambda: all(_figure(s, b"num-slaves") == b"1" for s in self.sentinels))
        _await(lambda: all(_figure(s, b"num-other-sentinels") == b"2" for s in self.sentinels))
        return self

    def __exit__(self, *_: object) -> None:
        for server in (*self.sentinels, self.master, self.replica):
            server.stop()
        self._folder.cleanup()

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{s.port}" for s in self.sentinels) + "/mymaster"

    def wait_replicated(self) -> None:
        """Return once the replica has what the master has."""
        _await(lambda: b"master_link_status:up" in self.replica.command("INFO", "replication"))
        _await(lambda: self.master.command("WAIT", "1", "1000").startswith(b":1"))

    def kill_master(self) -> None:
        """End the master without a word."""
        self.master.stop()

    def _sentinel(self, number: int) -> RedisServer:
        server = RedisServer()
        config = Path(self._folder.name) / f"sentinel-{number}.conf"
        watched = f"mymaster 127.0.0.1 {self.master.port} 2"
        config.write_text(
            f"sentinel monitor {watched}\nsentinel down-after-milliseconds mymaster 500\n"
            "sentinel failover-timeout mymaster 3000\nsentinel parallel-syncs mymaster 1\n"
        )
        server.start_as_sentinel(config)
        return server


class Cluster:
    """Two nodes, each with half of the slots, and if asked for a replica of each."""

    def __init__(self, *, replicas: bool = False) -> None:
        self._size = 4 if replicas else 2

    def __enter__(self) -> Self:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        # By itself a node adds 10,000 to its port, which may be no port any more.
        buses = [str(_free_port()) for _ in range(self._size)]
        self._nodes = [RedisServer(*options, "--cluster-port", bus) for bus in buses]
        for node in self._nodes:
            node.start()
        for node, (first, last) in zip(self._nodes[:2], ((0, 8191), (8192, 16383)), strict=True):
            node.command("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
        for node, bus in zip(self._nodes[1:], buses[1:], strict=True):
            self._nodes[0].command("CLUSTER", "MEET", "127.0.0.1", str(node.port), bus)
        known = b"cluster_known_nodes:%d" % self._size
        _await(lambda: all(b"cluster_state:ok" in n.command("CLUSTER", "INFO") for n in self._nodes))
        _await(lambda: all(known in n.command("CLUSTER", "INFO") for n in self._nodes))
        for primary, replica in zip(self._nodes[:2], self._nodes[2:], strict=False):
            name = primary.command("CLUSTER", "MYID").split(b"\r\n")[1].decode()
            replica.command("CLUSTER", "REPLICATE", name)
            _await(lambda replica=replica: b"master_link_status:up" in replica.command("INFO", "replication"))  # type: ignore[misc]
        # Nodes that have not heard of it yet do not vote for a replica.
        _await(lambda: all(n.command("CLUSTER", "NODES").count(b"slave ") == self._size - 2 for n in self._nodes))
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            node.stop()

    @property
    def url(self) -> str:
        """Names the first node alone."""
        return f"redis+cluster://127.0.0.1:{self._nodes[0].port}"

    def primary_and_replica_of(self, key: str) -> tuple[RedisServer, RedisServer]:
        """The nodes that hold `key` where there are replicas."""
        slot = int(self._nodes[0].command("CLUSTER", "KEYSLOT", key)[1:])
        return self._nodes[slot // 8192], self._nodes[2 + slot // 8192]

    def commands(self) -> list[int]:
        """How many scripts each node has run."""
        found = [node.command("INFO", "commandstats") for node in self._nodes]
        return [each.count(b"cmdstat_evalsha") for each in found]


def _figure(server: RedisServer, name: bytes) -> bytes:
    """A figure of the first master that a sentinel watches."""
    words = server.command("SENTINEL", "MASTERS").split(b"\r\n")
    return words[words.index(name) + 2] if name in words else b""


def _await(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 3 * _START_LIMIT_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.05)
    raise TimeoutError("the servers did not find each other")


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
