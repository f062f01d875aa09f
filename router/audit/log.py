"""Takes records from requests without making them wait, and says when it can no longer promise to keep them."""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from shared import logs
from shared.clock import Clock
from shared.privacy import PrivacyClass

_BATCH_RECORDS = 512
_RETRY_S = 1.0
_GATHER_S = 0.05
"""How long the first record of a batch waits for others: one write to the disk serves all of them."""


class Storage(Protocol):
    """Where records end up."""

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Keep all of `records`, or raise OSError and keep none."""

    def sync(self) -> None:
        """Force to the disk what was kept before."""


class AuditLog:
    """A bounded queue before a storage that a thread writes to.

    While the storage fails, `can_record` is False for every class but `public`: those requests fail closed. Public
    ones go on, and their records wait in the queue; what it cannot hold is counted by `on_loss`.
    """

    def __init__(
        self, storage: Storage, key: bytes, clock: Clock, *, queue_records: int, on_loss: Callable[[], None]
    ) -> None:
        self._storage = storage
        # In one call, `hmac.digest` lets the thread that writes go on each time, and then waits for it.
        self._keyed = hmac.new(key, digestmod="sha256")
        self._clock = clock
        self._limit = queue_records
        self._on_loss = on_loss
        self._queue: deque[Mapping[str, Any]] = deque()
        self._arrived = asyncio.Event()
        self._writing: asyncio.Task[bool] | None = None
        self._failing = False
        self._listeners: list[Callable[[Mapping[str, Any]], None]] = []
        self._log = logs.get("audit")

    @property
    def failing(self) -> bool:
        """Whether the storage refused the last write."""
        return self._failing

    def can_record(self, privacy_class: PrivacyClass) -> bool:
        """Whether a request of this class may be served now."""
        return privacy_class is PrivacyClass.PUBLIC or not (self._failing or len(self._queue) >= self._limit)

    def listen(self, hear: Callable[[Mapping[str, Any]], None]) -> None:
        """Let `hear` have every record as it comes, kept or lost."""
        self._listeners.append(hear)

    def record(self, record: Mapping[str, Any]) -> None:
        """Keep `record`; returns at once."""
        for hear in self._listeners:
            hear(record)
        if len(self._queue) >= self._limit:
            self._on_loss()
            return
        self._queue.append(record)
        self._arrived.set()

    def digest(self, body: bytes) -> str:
        """Keyed digest of a body: equal bodies can be recognised, and short ones cannot be guessed without the key."""
        digest = self._keyed.copy()
        digest.update(body)
        return "hmac-sha256:" + digest.hexdigest()

    async def run(self) -> None:
        """Write for ever; after a failure try again once a second."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await self._clock.sleep(_GATHER_S)
            while self._queue:
                if not await self._write():
                    await self._clock.sleep(_RETRY_S)

    async def keep_synced(self, interval_s: float = 1.0) -> None:
        """Force what was written to the disk, once in `interval_s`, for ever."""
        while True:
            await self._clock.sleep(interval_s)
            try:
                await asyncio.to_thread(self._storage.sync)
            except OSError as error:
                self._fail(error)

    async def flush(self) -> None:
        """Write what waits, as far as the storage takes it."""
        while self._queue and await self._write():
            pass

    async def _write(self) -> bool:
        """Write what waits longest. A write that has begun ends, whoever stops waiting for it: what it keeps would
        otherwise be taken for waiting, and be kept twice."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_batch())
        return await asyncio.shield(self._writing)

    async def _write_batch(self, most: int = _BATCH_RECORDS) -> bool:
        batch = [self._queue[n] for n in range(min(most, len(self._queue)))]
        try:
            await asyncio.to_thread(self._storage.append, batch)
        except OSError as error:
            self._fail(error)
            return False
        except (TypeError, ValueError):
            # One of them is no JSON, which is a fault of ours: it alone is lost, and the log lives on.
            if len(batch) > 1:
                return all([await self._write_batch(1) for _ in batch])
            self._log.error("audit_record_unwritable")
            self._on_loss()
        for _ in batch:
            self._queue.popleft()
        if self._failing:
            self._failing = False
            self._log.info("audit_storage_up")
        return True

    def _fail(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            self._log.error("audit_storage_failing", error=type(error).__name__, errno=error.errno)
