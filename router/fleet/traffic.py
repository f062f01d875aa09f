"""Who served how much lately and why: counts over five minutes, and the last words of decisions about each backend."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

_SLOT_MS = 10_000
_SLOTS = 30
_MOST_BACKENDS = 20_000
_LISTED = 64


@dataclass(frozen=True, slots=True)
class Lately:
    """One backend. `share_ratio` is its part of all attempts of the last five minutes, None where there were none;
    `last_reason` says why it was chosen last, `last_rejection` why it was not."""

    attempts: int
    share_ratio: float | None
    last_reason: str | None
    last_rejection: str | None


class Traffic:
    """What this process sent. Times are milliseconds of its monotonic clock."""

    def __init__(self) -> None:
        self._slots: deque[tuple[int, dict[str, int]]] = deque()
        self._reasons: dict[str, str] = {}
        self._rejections: dict[str, str] = {}

    def note(self, attempted: Iterable[str], rejected: Iterable[tuple[str, str]], reason: str, now_ms: int) -> None:
        """Count one request: the backends that were tried, and those that a decision ruled out, each with its reason.
        Of a large fleet the first ones are remembered."""
        slot = now_ms // _SLOT_MS
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, {}))
            self._drop_old(slot)
        counts = self._slots[-1][1]
        for backend_id in attempted:
            counts[backend_id] = counts.get(backend_id, 0) + 1
            _remember(self._reasons, backend_id, reason)
        for _, (backend_id, why) in zip(range(_LISTED), rejected, strict=False):
            _remember(self._rejections, backend_id, why)

    def lately(self, now_ms: int) -> dict[str, Lately]:
        """Every backend that anything is known of."""
        self._drop_old(now_ms // _SLOT_MS)
        counts: dict[str, int] = {}
        for _, slot in self._slots:
            for backend_id, count in slot.items():
                counts[backend_id] = counts.get(backend_id, 0) + count
        total = sum(counts.values())
        return {
            name: Lately(
                attempts=counts.get(name, 0),
                share_ratio=counts.get(name, 0) / total if total else None,
                last_reason=self._reasons.get(name),
                last_rejection=self._rejections.get(name),
            )
            for name in counts.keys() | self._reasons.keys() | self._rejections.keys()
        }

    def _drop_old(self, slot: int) -> None:
        while self._slots and self._slots[0][0] <= slot - _SLOTS:
            self._slots.popleft()


def _remember(found: dict[str, str], name: str, words: str) -> None:
    found.pop(name, None)
    found[name] = words
    if len(found) > _MOST_BACKENDS:
        del found[next(iter(found))]
