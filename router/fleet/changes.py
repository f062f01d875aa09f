"""Collects which backends may stand otherwise than when they were last looked at, by word of mouth or by time."""

from __future__ import annotations

import heapq


class Changes:
    """Ids of backends. `take` empties it."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._due: list[tuple[int, str]] = []
        self._due_ms: dict[str, int] = {}

    def note(self, backend_id: str) -> None:
        """Something about a backend is new."""
        self._ids.add(backend_id)

    def note_at(self, backend_id: str, due_ms: int) -> None:
        """Something about a backend may be new at `due_ms`, because that much time has passed. Of several times the
        first counts: who looks then notes the next."""
        known_ms = self._due_ms.get(backend_id)
        if known_ms is None or due_ms < known_ms:
            self._due_ms[backend_id] = due_ms
            heapq.heappush(self._due, (due_ms, backend_id))

    def take(self, now_ms: int) -> set[str]:
        """What was noted and what is due at `now_ms`, each once."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, backend_id = heapq.heappop(self._due)
            self._ids.add(backend_id)
            if self._due_ms.get(backend_id) == due_ms:
                del self._due_ms[backend_id]
        taken, self._ids = self._ids, set()
        return taken
