"""Runs sequences side by side in one thread: each in turn gets one bounded step, those beyond the slots wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from edge.runtime.onnx.sequence import Failed, Job, Sequence


class Scheduler:
    """Owns the thread that computes. The runtime's own threads work below it, so one is enough."""

    def __init__(self, start: Callable[[Job], Sequence], *, slots: int) -> None:
        self._start = start
        self._slots = slots
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: list[Sequence] = []
        self._thread = threading.Thread(target=self._work, name="compute", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Compute `job` when it is its turn."""
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """Stop `job` before its next step; safe when it has ended."""
        with self._changed:
            job.cancelled = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            self._admit()
            self._running = [sequence for sequence in self._running if self._advanced(sequence)]

    def _admit(self) -> None:
        """Fill free slots from the line; wait while there is nothing to compute."""
        while True:
            with self._changed:
                while not self._running and not self._waiting:
                    self._changed.wait()
                if len(self._running) >= self._slots or not self._waiting:
                    return
                job = self._waiting.popleft()
            if job.cancelled:
                continue
            try:
                self._running.append(self._start(job))
            except (RuntimeError, MemoryError, ValueError):  # the runtime's own kinds of failure
                job.emit(job.index, Failed())

    @staticmethod
    def _advanced(sequence: Sequence) -> bool:
        if sequence.job.cancelled:
            return False
        try:
            return sequence.step()
        except (RuntimeError, MemoryError, ValueError):
            sequence.job.emit(sequence.job.index, Failed())
            return False
