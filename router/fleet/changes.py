"""Collects which backends may stand otherwise than when they were last looked at, by word of mouth or by time."""

from __future__ import annotations

import heapq


class Changes:
    """Ids of backends. `take` and `take_signs` empty it."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._signs: set[str] = set()
        self._due: list[tuple[int, str]] = []
        self._due_ms: dict[str, int] = {}

    def note(self, backend_id: str) -> None:
        """Something about a backend is new."""
        self._ids.pop(backend_id, None)
        self._ids[backend_id] = None

    def note_sign(self, backend_id: str) -> None:
        """A backend reported what it had said before."""
        self._signs.add(backend_id)

    def take_signs(self) -> set[str]:
        """Those that said again what they had said before; some may have been noted besides."""
        signs, self._signs = self._signs, set()
        return signs

    def note_at(self, backend_id: str, due_ms: int) -> None:
        """Something about a backend may be new at `due_ms`, because that much time has passed. Of several times the
        first counts: who looks then notes the next."""
        known_ms = self._due_ms.get(backend_id)
        if known_ms is None or due_ms < known_ms:
            self._due_ms[backend_id] = due_ms
            heapq.heappush(self._due, (due_ms, backend_id))

    def take(self, now_ms: int) -> dict[str, None]:
        """What was noted and what is due at `now_ms`, each once: what was noted last stands last, for two that report
        from one address within a millisecond are told apart by nothing else."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, backend_id = heapq.heappop(self._due)
            self._ids.setdefault(backend_id)
            if self._due_ms.get(backend_id) == due_ms:
                del self._due_ms[backend_id]
        taken, self._ids = self._ids, {}
        return taken
