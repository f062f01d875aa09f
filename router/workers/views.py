"""What the console of each worker shows of all of them: their seconds added, and what each sent told to the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from router.admin.live import LiveWindow
from router.audit.query import row_of
from router.fleet.traffic import Tally, Traffic
from shared.clock import Clock

_ROWS = 256
"""Decisions that wait for one worker's watchers; older ones are dropped, and it is told how many."""


@dataclass(slots=True)
class _Place:
    """One worker: how many requests it has open, whether anybody watches there, and what it has not been told yet."""

    in_flight: int = 0
    watched: bool = False
    traffic: Tally = field(default_factory=Tally)
    rows: deque[dict[str, Any]] = field(default_factory=deque)
    missed: int = 0


class Views:
    """The parent's side. A worker is named by any value of its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window = LiveWindow()
        self._traffic = Traffic()
        self._places: dict[object, _Place] = {}
        self._number = 0
        self._closed_ms = clock.now_ms()

    def joined(self, worker: object) -> None:
        """A worker begins: it is told what all have sent before."""
        self._places[worker] = _Place(traffic=self._traffic.whole(self._clock.now_ms()))

    def left(self, worker: object) -> None:
        """A worker has ended; what it had told stays."""
        self._places.pop(worker, None)

    def wrote(self, worker: object, records: Sequence[Mapping[str, Any]]) -> None:
        """Records of a worker, which others show where somebody watches."""
        watching = [place for name, place in self._places.items() if place.watched and name is not worker]
        if not watching:
            return
        for row in [row_of(record) for record in records if record.get("kind") == "request"]:
            for place in watching:
                if len(place.rows) >= _ROWS:
                    place.rows.popleft()
                    place.missed += 1
                place.rows.append(row)

    def exchange(self, worker: object, told: Mapping[str, Any]) -> dict[str, Any]:
        """Take what a worker tells, and answer with what the others told since: `points` of the live window after its
        `number`, `traffic`, and `rows` of decisions."""
        place, now_ms = self._places[worker], self._clock.now_ms()
        place.in_flight, place.watched = told["in_flight"], told["watched"]
        self._window.add(told["second"])
        sent = Tally.of(told["traffic"])
        self._traffic.add(sent, now_ms)
        for name, other in self._places.items():
            if name is not worker:
                other.traffic.add(sent)
        answer = {
            "number": self._number,
            "points": self._window.points(self._number - told["number"]) if self._number > told["number"] else [],
            "traffic": place.traffic.plain(),
            "rows": list(place.rows),
            "missed": place.missed,
        }
        place.traffic, place.rows, place.missed = Tally(), deque(), 0
        return answer

    def close_second(self) -> None:
        """End the running second of the live window."""
        now_ms = self._clock.now_ms()
        elapsed_s, self._closed_ms = (now_ms - self._closed_ms) / 1000, now_ms
        self._window.close(self._clock.unix_s(), elapsed_s, sum(place.in_flight for place in self._places.values()))
        self._number += 1
