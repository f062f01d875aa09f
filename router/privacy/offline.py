"""Keeps code that reads a body away from the network: while it runs, its thread can open nothing that leaves.

The interpreter announces each use of a socket, each new process and each look-up of a name to an audit hook. The hook
raises where the announcing thread is one that reads; other threads, such as the event loop's, do not notice.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_FORBIDDEN = frozenset(
    {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.spawn"}
)
_ALLOWED_SOCKET = frozenset({"socket.gethostname", "socket.__new__"})


class NetworkUsed(RuntimeError):
    """A recogniser reached for the network or for another process."""


class OfflineGuard:
    """One for each process: an audit hook cannot be removed."""

    def __init__(self) -> None:
        self._local = threading.local()
        sys.addaudithook(self._hook)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within this, the current thread is refused everything that could carry text away."""
        before = getattr(self._local, "reads", False)
        self._local.reads = True
        try:
            yield
        finally:
            self._local.reads = before

    def _hook(self, event: str, args: tuple[object, ...]) -> None:
        if not getattr(self._local, "reads", False):
            return
        if event in _FORBIDDEN or (event.startswith("socket.") and event not in _ALLOWED_SOCKET):
            raise NetworkUsed(event)
