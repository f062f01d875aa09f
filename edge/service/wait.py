"""Predicts when one more request would have its turn, from the slots and the line as they are.

Each turn is taken to last as long as turns of its kind lately did for their size, and one that is past the middle of
that to be half over, however long it has lasted. A request may come back for further turns (a list of texts gives its
slot back after each), so a line in which such requests stand moves, and yet has no room for long.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from edge.service.line import FairLine
from shared.windows import Ewma

HORIZON_S = 3600.0
"""Nobody looks further ahead: whatever would take longer takes this long."""
_ALPHA = 0.2
_GUESS_S = 2.0
"""A turn of a kind that was never seen."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a request does with its slots. Turns of one `kind` last in proportion to their `size`, in the kind's own
    unit; `later_turns` of `later_size` in all follow after this one."""

    kind: str
    size: int = 1
    later_turns: int = 0
    later_size: int = 0
    is_promised: bool = False
    """It was admitted before and comes back, or it is the agent's own: neither a full line nor a closed door turns it
    away."""


ANSWER = Work("answer")
"""How long it gets nobody knows: an answer is as long as answers lately were."""


class Paces:
    """How long turns last, by kind: seconds over sizes, both as running means, so that large ones count for more."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Ewma, Ewma]] = {}

    def record(self, work: Work, held_s: float) -> None:
        """Take in one turn that has ended by itself."""
        held, size = self._seen.get(work.kind, (Ewma(), Ewma()))
        self._seen[work.kind] = held.updated(held_s, alpha=_ALPHA), size.updated(max(1, work.size), alpha=_ALPHA)

    def record_cut(self, work: Work, held_s: float) -> None:
        """Take in one turn that failed, or whose client left. It would have lasted that long at least, which says
        something where that is longer than was expected, and nothing where it is not: a run of requests that fail at
        once is no short line."""
        if held_s > self.expected_s(work.kind, work.size):
            self.record(work, held_s)

    def expected_s(self, kind: str, size: int) -> float:
        """How long turns of that size together are likely to last."""
        seen_s = self.seen_s(kind)
        if seen_s is None:
            return _GUESS_S if size else 0.0
        return seen_s * size

    def seen_s(self, kind: str) -> float | None:
        """How long turns of that kind lasted for each unit of their size; None: there was none."""
        held, sizes = self._seen.get(kind, (Ewma(), Ewma()))
        return None if held.value is None or sizes.value is None else held.value / sizes.value


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A request as the prediction sees it: its present turn, which needs `need` slots for `lasts_s` more, and what
    follows after that."""

    owner: Hashable
    need: int
    lasts_s: float
    later_turns: int = 0
    later_s: float = 0.0
    stays: bool = False

    def next(self) -> Part:
        """The same with its present turn behind it; it has later ones."""
        lasts_s = self.later_s / self.later_turns
        return Part(self.owner, self.need, lasts_s, self.later_turns - 1, self.later_s - lasts_s)

    def seconds_of(self, turns: int) -> float:
        """How long its first `turns` last, or all, if there are fewer."""
        if not turns:
            return 0.0
        later = min(turns - 1, self.later_turns)
        return self.lasts_s + (self.later_s * later / self.later_turns if later else 0.0)


def part_of(work: Work, paces: Paces, *, owner: Hashable, need: int, lasted_s: float = 0.0) -> Part:
    """The part of a request that has had its slots for `lasted_s`."""
    lasts_s = paces.expected_s(work.kind, work.size)
    left_s = lasts_s - lasted_s if lasted_s <= lasts_s / 2 else lasted_s
    later_s = paces.expected_s(work.kind, work.later_size)
    return Part(owner, need, left_s, work.later_turns, later_s)


def turn_s(running: Iterable[Part], waiting: Iterable[Part], newcomer: Part, *, slots: int) -> float:
    """Seconds until `newcomer`, who joins the line now, would have its slots. `waiting` stand in the order of turns."""
    line: FairLine[Part] = FairLine()
    for part in (*waiting, newcomer):
        line.append(part)
    ends = _Ends(slots)
    for part in running:
        ends.add(0.0, part)
    for back in ends.beyond():
        line.append(back)
    while True:
        part = next(iter(line))
        line.take(part)
        begins_s, returning = ends.take(part.need)
        if part is newcomer or begins_s >= HORIZON_S:
            return min(begins_s, HORIZON_S)
        for back in returning:  # behind whoever their slot went to
            line.append(back)
        ends.add(begins_s, part)


class _Ends:
    """When each of the slots becomes free, and who comes back for a later turn then."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._heap: list[tuple[float, int, Part | None]] = []
        self._added = 0

    def add(self, begins_s: float, part: Part) -> None:
        """`part` has its slots from then on."""
        back = part.next() if part.later_turns else None
        for _ in range(min(part.need, self._slots)):
            self._added += 1
            heapq.heappush(self._heap, (begins_s + part.lasts_s, self._added, back))
            back = None

    def beyond(self) -> list[Part]:
        """Who comes back from slots beyond the number of those that may be taken; they stay free."""
        return self._popped(len(self._heap) - self._slots)[1]

    def take(self, need: int) -> tuple[float, list[Part]]:
        """Take the first slots that become free: when they all are, and who comes back from them."""
        need = min(need, self._slots)
        idle = self._slots - len(self._heap)
        return self._popped(need - idle)

    def _popped(self, count: int) -> tuple[float, list[Part]]:
        popped = [heapq.heappop(self._heap) for _ in range(count)]
        return (popped[-1][0] if popped else 0.0), [back for _, _, back in popped if back is not None]


def room_s(present: Sequence[Part], leaving: int, *, slots: int) -> float:
    """Seconds until `leaving` of those `present` have had their last turns, if all take turns alike: at least the
    rounds before the last one."""
    if not 0 < leaving <= len(present):
        return 0.0
    rounds = sorted(part.later_turns for part in present)[leaving - 1]
    busy_s = sum(part.seconds_of(rounds) * part.need for part in present)
    return min(busy_s / slots, HORIZON_S)
