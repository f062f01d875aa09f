"""What pages run on: one real stack for all of them, and for each page folders, homes and shells of its own."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.testing.models import WHEEL_VARIABLE
from shared.testing.program import Program, child_environment, isthmus
from shared.testing.stack import free_ports, use_cache
from tests.architecture.sources import ROOT
from tests.docs.shell import Shell

START_LIMIT_S = 240
ROUTER, EDGE = "127.0.0.1:8080", "127.0.0.1:8081"
"""Addresses as pages name them: the defaults."""


@dataclass(frozen=True, slots=True)
class Place:
    """A home and the addresses of router and edge agent that go with it."""

    home: Path
    router: str
    edge: str
    printed: str = ""
    """What `isthmus up` said, where it runs here."""

    def environment(self, folder: Path) -> dict[str, str]:
        """Environment of a page's commands, which run in `folder`."""
        ports = {"ROUTER__PORT": self.router, "EDGE__PORT": self.edge}
        return child_environment(self.home) | {
            **{f"ISTHMUS__{name}": address.rpartition(":")[2] for name, address in ports.items()},
            "ISTHMUS__LOADTEST__HOST": f"http://{self.router}",
            "PATH": f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "COLUMNS": "80",
            "TERM": "dumb",
            "NO_COLOR": "1",
        }


@pytest.fixture(scope="session")
def running() -> Iterator[Place]:
    """Router and edge agent with the real engine, as `isthmus up` starts them; the engine starts once for all pages."""
    ports = free_ports(2)
    settings = {name: {"port": port} for name, port in zip(("router", "edge"), ports, strict=True)}
    router, edge = (f"127.0.0.1:{port}" for port in ports)
    # A short path: the control socket's name has to fit into 107 bytes.
    with tempfile.TemporaryDirectory(prefix="isthmus-docs-") as folder:
        home = Path(folder)
        use_cache(home)
        if wheel := os.environ.get(WHEEL_VARIABLE):
            with isthmus("edge", "pull", wheel, home=home, settings={}, name="pull") as pull:
                assert pull.process.wait(START_LIMIT_S) == 0, pull.log_end()
        with isthmus("up", "--tiers", "edge", home=home, settings=settings, name="up") as program:
            for address in (router, edge):
                program.wait_answer(f"http://{address}/readyz", START_LIMIT_S)
            _wait_said(program)
            yield Place(home, router, edge, program.log.read_text())


def _wait_said(program: Program) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while "Stop: Ctrl-C" not in program.log.read_text() and time.monotonic() < deadline_s:
        time.sleep(0.1)


@pytest.fixture
def apart(tmp_path: Path) -> Place:
    """A home and addresses where nothing runs yet."""
    home = tmp_path / "home"
    home.mkdir()
    router, edge = (f"127.0.0.1:{port}" for port in free_ports(2))
    return Place(home, router, edge)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that looks like a clone of the repository, with `isthmus` and `python` on its path."""
    folder = tmp_path / "clone"
    binaries = folder / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.name not in (".git", ".venv"):
            (folder / path.name).symlink_to(path)
    for name, arguments in {"python": "", "isthmus": "-P -m shared.cli "}.items():
        (binaries / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
        (binaries / name).chmod(0o755)
    (binaries / "activate").write_text("")
    return folder


class Shells:
    """The shells of one page by the word before the prompt; another machine has a home of its own."""

    def __init__(self, folder: Path, place: Place, device_home: Path) -> None:
        self._folder = folder
        self._place = place
        self._device_home = device_home
        self._shells: dict[str, Shell] = {}

    def run(self, name: str, command: str) -> tuple[int, str]:
        """Exit code and output of a command."""
        if name not in self._shells:
            environment = self._place.environment(self._folder)
            if name == "device":
                self._device_home.mkdir()
                environment["ISTHMUS_HOME"] = str(self._device_home)
            self._shells[name] = Shell(self._folder, environment)
        return self._shells[name].run(command)

    def end(self) -> None:
        """End all of them."""
        for shell in self._shells.values():
            shell.end()
