"""Classifies a whole body within its time: beside the event loop where it is large, and always with an answer.

Nothing here raises but cancellation. A scanner that fails, answers nonsense, runs out of time or finds all workers
taken gives class `unknown`, whose cause is counted; a body with parts that no scanner reads does too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from router.privacy.model import Classification
from shared import logs
from shared.clock import Clock
from shared.openai.text import TextPosition, texts_of
from shared.openai.unreadable import has_undecodable
from shared.privacy import PrivacyClass

_log = logs.get("router.privacy")

CAUSES = ("error", "timeout", "overflow", "undecodable")
INLINE_BYTES = 16 * 1024
"""Bodies up to this size are scanned in the event loop: handing them over would cost more than the scan."""


class TextScanner(Protocol):
    """What concludes a class over texts; `expired` says when to give up."""

    def scan(self, texts: Iterable[TextPosition], *, expired: Callable[[], bool] | None = None) -> Classification:
        """The conclusion over `texts`."""


class Classifier:
    """Runs a scanner over bodies with a limit on time and on scans at once."""

    def __init__(
        self,
        scanner: TextScanner,
        clock: Clock,
        *,
        timeout_s: float,
        workers: int,
        waiting_limit: int | None = None,
        inline_bytes: int = INLINE_BYTES,
        on_incomplete: Callable[[str], None] = lambda cause: None,
    ) -> None:
        """`waiting_limit` bounds scans that wait for a worker (default: four a worker); `on_incomplete` is told the
        cause of each class `unknown`, for a counter; larger bodies than `inline_bytes` go to a worker."""
        self._scanner = scanner
        self._clock = clock
        self._timeout_s = timeout_s
        self._on_incomplete = on_incomplete
        self._inline_bytes = inline_bytes
        self._room = workers * 5 if waiting_limit is None else workers + waiting_limit
        self._open = 0
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="isthmus-scan")

    async def classify(self, body: dict[str, Any], *, size_bytes: int, raw: bytes = b"") -> Classification:
        """The class of `body`, whose JSON has `size_bytes` bytes and is `raw` where that travels. Raises nothing but
        cancellation."""
        if size_bytes <= self._inline_bytes:
            found = self._scan_now(lambda: texts_of(body, raw), self._deadline_ms())
        else:
            found = await self._scan(lambda: texts_of(body, raw), size_bytes)
        if found.complete and has_undecodable(body):
            found = found._replace(privacy_class=PrivacyClass.UNKNOWN, complete=False, cause="undecodable")
        return self._counted(found)

    async def locate(self, texts: Sequence[TextPosition], *, size_bytes: int) -> Classification:
        """What stands where in `texts`, each read by itself. Raises nothing but cancellation."""
        return self._counted(await self._scan(lambda: texts, size_bytes))

    def close(self) -> None:
        """Let running scans end and take no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _counted(self, found: Classification) -> Classification:
        if not found.complete:
            self._on_incomplete(found.cause or "error")
        return found

    async def _scan(self, texts: Callable[[], Iterable[TextPosition]], size_bytes: int) -> Classification:
        deadline_ms = self._deadline_ms()
        if size_bytes <= self._inline_bytes:
            return self._scan_now(texts, deadline_ms)
        if self._open >= self._room:
            return _incomplete("overflow")
        loop = asyncio.get_running_loop()
        try:
            future = self._pool.submit(self._scan_now, texts, deadline_ms)
        except RuntimeError:  # the pool is closed
            return _incomplete("error")
        self._open += 1
        future.add_done_callback(lambda done: _in_loop(loop, self._release))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._timeout_s)
        except TimeoutError:
            return _incomplete("timeout")

    def _deadline_ms(self) -> float:
        return self._clock.now_ms() + self._timeout_s * 1000

    def _release(self) -> None:
        self._open -= 1

    def _scan_now(self, texts: Callable[[], Iterable[TextPosition]], deadline_ms: float) -> Classification:
        try:
            return _checked(self._scanner.scan(texts(), expired=lambda: self._clock.now_ms() >= deadline_ms))
        except Exception as error:  # noqa: BLE001 - the edge of the scan: any failure means unknown, and is counted
            _log.error("scan_failed", error_type=type(error).__name__)
            return _incomplete("error")


def _in_loop(loop: asyncio.AbstractEventLoop, release: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(release)
    except RuntimeError:  # the loop is closed: nobody waits for room any more
        return


def _checked(found: Classification) -> Classification:
    """A scanner's answer, held to its contract: not finished means unknown, and an unknown cause is an error."""
    privacy_class = found.privacy_class
    if type(privacy_class) is not PrivacyClass:
        privacy_class = PrivacyClass(privacy_class)
    if found.complete and privacy_class is not PrivacyClass.UNKNOWN and found.cause is None:
        return found
    cause = found.cause if found.cause in CAUSES else "error"
    return Classification(PrivacyClass.UNKNOWN, tuple(found.entities), complete=False, cause=cause)


def _incomplete(cause: str) -> Classification:
    return Classification(PrivacyClass.UNKNOWN, (), complete=False, cause=cause)
