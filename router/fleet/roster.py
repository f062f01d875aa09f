"""Keeps the snapshots of a fleet in one order, and in the shape that decisions read, as backends come, change and go.

A change of one backend costs a copy of the list and the rows of that backend; nothing is made anew while all stay as
they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from router.policy.listed import Listed
from router.policy.question import View
from router.policy.rows import in_order
from shared.fleet import BackendSnapshot

if TYPE_CHECKING:
    from router.policy.columns import Columns

BULK_FROM = 64
"""Backends from which on a decision over columns takes less time than one over the list."""


class Roster:
    """Snapshots by id. Each sequence that was handed out stays as it was."""

    def __init__(self) -> None:
        self.backends: tuple[BackendSnapshot, ...] = ()
        self.places: Mapping[str, int] = {}
        """Index of each id in `backends`."""
        self._fresh: set[int] = set()
        self._heard: set[int] = set()
        """Places where nothing but the time of the last report is new."""
        self._listed: Listed | None = None
        self._columns: Columns | None = None

    def get(self, backend_id: str) -> BackendSnapshot | None:
        """The snapshot of a backend."""
        place = self.places.get(backend_id)
        return None if place is None else self.backends[place]

    def put(self, changed: Mapping[str, BackendSnapshot | None]) -> None:
        """Take the snapshots that changed; None for a backend that is gone."""
        places = self.places
        if all(new is not None and self._stays(new) for new in changed.values()):
            backends = list(self.backends)
            for backend_id, new in changed.items():
                if new is not None:
                    backends[places[backend_id]] = new
                    self._fresh.add(places[backend_id])
            self.backends = tuple(backends)
            return
        stay = [backend for backend in self.backends if backend.backend_id not in changed]
        self.backends = tuple(in_order([*stay, *(new for new in changed.values() if new is not None)]))
        self.places = {backend.backend_id: place for place, backend in enumerate(self.backends)}
        self._listed = self._columns = None

    def hear(self, revived: Mapping[str, BackendSnapshot]) -> None:
        """Take the snapshots of backends that stand where they stood, and differ in `received_ms` alone."""
        backends = list(self.backends)
        for backend_id, new in revived.items():
            backends[self.places[backend_id]] = new
            self._heard.add(self.places[backend_id])
        self.backends = tuple(backends)

    def view(self) -> View:
        """The snapshots as decisions read them: one by one, or as columns where they are many."""
        if len(self.backends) < BULK_FROM:
            self._columns = None
            self._listed = Listed(self.backends) if self._listed is None else self._updated_list(self._listed)
            self._forget_changes()
            return self._listed
        # A router in front of a few backends never loads numpy.
        from router.policy.bulk import Bulk  # noqa: PLC0415
        from router.policy.columns import columns_of  # noqa: PLC0415

        self._listed = None
        last = self._columns
        if last is None:
            self._columns = columns_of(self.backends)
        else:
            self._columns = last.updated(self.backends, self._fresh, self._heard - self._fresh)
        self._forget_changes()
        return Bulk(self._columns)

    def _updated_list(self, last: Listed) -> Listed:
        changed = self._fresh | self._heard
        return last.updated(self.backends, changed) if changed else last

    def _forget_changes(self) -> None:
        self._fresh.clear()
        self._heard.clear()

    def _stays(self, new: BackendSnapshot) -> bool:
        """Whether a backend keeps its place."""
        known = self.get(new.backend_id)
        return known is not None and known.url == new.url
