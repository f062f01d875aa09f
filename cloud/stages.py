"""Measures what each stage of a start takes, so that a slow one is seen where it is."""

from __future__ import annotations

import time

import psutil


class Stages:
    """Stages of one process, end to end; the first began with the process itself."""

    def __init__(self) -> None:
        age_s = time.time() - psutil.Process().create_time()
        self._began_s = self._last_s = time.monotonic() - max(0.0, age_s)
        self.ended_s: dict[str, float] = {}
        """Seconds of each stage that has ended, in order."""

    def end(self, name: str) -> None:
        """The stage `name` ends now, and the next begins."""
        now_s = time.monotonic()
        self.ended_s[name] = round(now_s - self._last_s, 1)
        self._last_s = now_s

    @property
    def total_s(self) -> float:
        """Seconds since the process began."""
        return round(time.monotonic() - self._began_s, 1)
