"""Who served how much lately and why: counts over five minutes, and the last words of decisions about each backend."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

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


@dataclass(slots=True)
class Tally:
    """Attempts by backend, and the last words about each."""

    attempts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    rejections: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """What `plain` gave."""
        return cls(plain["attempts"], plain["reasons"], plain["rejections"])

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {"attempts": self.attempts, "reasons": self.reasons, "rejections": self.rejections}

    def add(self, other: Tally) -> None:
        """Add what came after."""
        for backend_id, count in other.attempts.items():
            self.attempts[backend_id] = self.attempts.get(backend_id, 0) + count
        for mine, theirs in ((self.reasons, other.reasons), (self.rejections, other.rejections)):
            for backend_id, words in theirs.items():
                _remember(mine, backend_id, words)


class Traffic:
    """What was sent from here, and from other processes as far as they told. Times are milliseconds of the monotonic
    clock of this one."""

    def __init__(self) -> None:
        self._slots: deque[tuple[int, dict[str, int]]] = deque()
        self._words = Tally()
        self._untold: Tally | None = None

    def keep_untold(self) -> None:
        """From now on keep what `untold` gives."""
        self._untold = Tally()

    def untold(self) -> Tally:
        """What was noted here since this was asked last; nothing where it is not kept."""
        told = self._untold or Tally()
        self._untold = None if self._untold is None else Tally()
        return told

    def note(self, attempted: Iterable[str], rejected: Iterable[tuple[str, str]], reason: str, now_ms: int) -> None:
        """Count one request: the backends that were tried, and those that a decision ruled out, each with its reason.
        Of a large fleet the first ones are remembered."""
        counts, words, untold = self._slot(now_ms), self._words, self._untold
        for backend_id in attempted:
            counts[backend_id] = counts.get(backend_id, 0) + 1
            _remember(words.reasons, backend_id, reason)
            if untold is not None:
                untold.attempts[backend_id] = untold.attempts.get(backend_id, 0) + 1
                untold.reasons[backend_id] = reason
        for _, (backend_id, why) in zip(range(_LISTED), rejected, strict=False):
            _remember(words.rejections, backend_id, why)
            if untold is not None:
                untold.rejections[backend_id] = why

    def add(self, noted: Tally, now_ms: int) -> None:
        """Count what was noted elsewhere."""
        counts = self._slot(now_ms)
        for backend_id, count in noted.attempts.items():
            counts[backend_id] = counts.get(backend_id, 0) + count
        self._words.add(Tally({}, noted.reasons, noted.rejections))

    def _slot(self, now_ms: int) -> dict[str, int]:
        """The running part of the five minutes."""
        slot = now_ms // _SLOT_MS
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, {}))
            self._drop_old(slot)
        return self._slots[-1][1]

    def whole(self, now_ms: int) -> Tally:
        """All that is known now, for who begins to count. Its attempts count as made then."""
        return Tally(self._counts(now_ms), dict(self._words.reasons), dict(self._words.rejections))

    def lately(self, now_ms: int) -> dict[str, Lately]:
        """Every backend that anything is known of."""
        counts, reasons, rejections = self._counts(now_ms), self._words.reasons, self._words.rejections
        total = sum(counts.values())
        return {
            name: Lately(
                attempts=counts.get(name, 0),
                share_ratio=counts.get(name, 0) / total if total else None,
                last_reason=reasons.get(name),
                last_rejection=rejections.get(name),
            )
            for name in counts.keys() | reasons.keys() | rejections.keys()
        }

    def _counts(self, now_ms: int) -> dict[str, int]:
        self._drop_old(now_ms // _SLOT_MS)
        counts: dict[str, int] = {}
        for _, slot in self._slots:
            for backend_id, count in slot.items():
                counts[backend_id] = counts.get(backend_id, 0) + count
        return counts

    def _drop_old(self, slot: int) -> None:
        while self._slots and self._slots[0][0] <= slot - _SLOTS:
            self._slots.popleft()


def _remember(found: dict[str, str], name: str, words: str) -> None:
    found.pop(name, None)
    found[name] = words
    if len(found) > _MOST_BACKENDS:
        del found[next(iter(found))]
