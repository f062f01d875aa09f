"""One whole stack for tests: router, edge, and cloud where it can run, as a user starts it with `isthmus up`."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from shared.settings import environment
from shared.testing.program import Program, child_environment, isthmus

CACHE_VARIABLE = "ISTHMUS_TEST_CACHE"
START_LIMIT_S = 1200


@dataclass(frozen=True)
class Stack:
    """A running stack: where its tiers listen, and what is needed to run further commands on it."""

    home: Path
    config: Path
    tiers: frozenset[str]
    urls: dict[str, str]
    """Base address of router, edge and cloud."""
    program: Program

    @property
    def url(self) -> str:
        """Base address of the router."""
        return self.urls["router"]

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a command that shall find this stack."""
        return child_environment(self.home)

    def state(self) -> dict[str, Any]:
        """What the launcher says on its control socket."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(10)
            control.connect(str(self.home / "run/up.sock"))
            control.sendall(b"GET /state HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: control.recv(65536), b""))
        state: dict[str, Any] = orjson.loads(answer.partition(b"\r\n\r\n")[2])
        return state


def can_run_cloud() -> bool:
    """Whether Ray and vLLM are installed here."""
    return all(importlib.util.find_spec(name) is not None for name in ("ray", "vllm"))


@contextlib.contextmanager
def running_stack(settings: Mapping[str, Mapping[str, Any]], tiers: Sequence[str] | None = None) -> Iterator[Stack]:
    """A stack with `settings` by section, on free ports, ready; it is stopped after the block. Beside the router it has
    these `tiers`, or all that can run here.

    Raises:
        AssertionError: it was not ready in time; the message is the end of its log.
    """
    if tiers is None:
        tiers = ["edge", "cloud"] if can_run_cloud() else ["edge"]
    ports = dict(zip(("router", "edge", "cloud"), free_ports(3), strict=True))
    sections = {name: {**settings.get(name, {}), "port": port} for name, port in ports.items()}
    sections |= {name: dict(values) for name, values in settings.items() if name not in ports}
    # A short path: the control socket's name has to fit into 107 bytes.
    with tempfile.TemporaryDirectory(prefix="isthmus-stack-") as folder:
        home = Path(folder)
        use_cache(home)
        with isthmus("up", "--json", "--tiers", ",".join(tiers), home=home, settings=sections, name="up") as program:
            wanted = {"router", *tiers}
            _wait_ready(program, wanted)
            urls = {name: f"http://127.0.0.1:{ports[name]}" for name in wanted}
            yield Stack(home, home / "up.yaml", frozenset(tiers), urls, program)


def use_cache(home: Path) -> None:
    """Take models and checkpoints of an earlier run, if the caller keeps them in `$ISTHMUS_TEST_CACHE`."""
    if cache := environment().get(CACHE_VARIABLE):
        for name in ("models", "checkpoints"):
            kept = Path(cache) / name
            kept.mkdir(parents=True, exist_ok=True)
            (home / name).symlink_to(kept, target_is_directory=True)


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _wait_ready(program: Program, wanted: set[str]) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s and program.process.poll() is None:
        if wanted in (set(event["tiers"]) for event in _events(program) if event["event"] == "ready"):
            return
        time.sleep(0.2)
    raise AssertionError(f"the stack was not ready (exit code {program.process.poll()})\n{program.log_end()}")


def _events(program: Program) -> Iterator[dict[str, Any]]:
    for line in program.log.read_bytes().splitlines(keepends=True):
        if line.startswith(b"{") and line.endswith(b"\n"):
            yield orjson.loads(line)
