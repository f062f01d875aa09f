"""Keeps what a vLLM engine says of its work: requests that wait, cache in use, prefix hits, tokens each second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

_WINDOW_S = 5.0
_HIT_WINDOW = 200
"""Scheduler steps with cache lookups over which the hit ratio is taken."""


class EngineLoad:
    """A vLLM stat logger that keeps the scheduler's last figures."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.waiting = 0
        self.kv_cache_use_ratio = 0.0
        self._now_s = now_s
        self._tokens: deque[tuple[float, int]] = deque()
        self._lookups: deque[tuple[int, int]] = deque(maxlen=_HIT_WINDOW)

    def record(self, scheduler_stats: Any, iteration_stats: Any = None, *_: Any, **__: Any) -> None:
        """Called by vLLM after each step."""
        if scheduler_stats is not None:
            self.waiting = scheduler_stats.num_waiting_reqs
            self.kv_cache_use_ratio = scheduler_stats.kv_cache_usage
            looked_up = scheduler_stats.prefix_cache_stats
            if looked_up is not None and looked_up.queries:
                self._lookups.append((looked_up.hits, looked_up.queries))
        if iteration_stats is not None and iteration_stats.num_generation_tokens:
            self._tokens.append((self._now_s(), iteration_stats.num_generation_tokens))
            self._forget()

    @property
    def prefix_hit_ratio(self) -> float | None:
        """Share of prompt tokens that lately came from the cache; None where none was looked up."""
        queries = sum(queries for _, queries in self._lookups)
        return sum(hits for hits, _ in self._lookups) / queries if queries else None

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens generated each second, over the last five."""
        self._forget()
        return sum(count for _, count in self._tokens) / _WINDOW_S

    def _forget(self) -> None:
        oldest_s = self._now_s() - _WINDOW_S
        while self._tokens and self._tokens[0][0] < oldest_s:
            self._tokens.popleft()

    def log(self, *_: Any, **__: Any) -> None:
        """Nothing is written."""

    def log_engine_initialized(self) -> None:
        """Nothing is written."""

    def record_sleep_state(self, *_: Any, **__: Any) -> None:
        """Engines here do not sleep."""
