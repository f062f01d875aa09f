"""The time against which expiry is judged on a device whose clock may be wrong or absent.

Time is never before what a trusted channel has last stated, nor before what this device has last seen: a clock that
restarts in 1970 does not make expired metadata valid again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from edge.packages.durable import replace_synced
from shared.errors import SettingsError

_FILE = "time-floor"


def system_now() -> datetime:
    """The system's clock."""
    return datetime.now(UTC)


class TrustedTime:
    """A clock with a floor that is kept in `folder` and only rises."""

    def __init__(self, folder: Path, now: Callable[[], datetime] = system_now) -> None:
        self._path = folder / _FILE
        self._now = now

    def now(self) -> datetime:
        """The system's time, or the floor where that is later.

        Raises:
            SettingsError: the floor cannot be read: without it expired metadata would pass.
        """
        floor = self._floor()
        now = self._now()
        return now if floor is None else max(now, floor)

    def raise_to(self, seen: datetime) -> None:
        """It is at least `seen`, and at least what `now` says."""
        latest = max(seen, self.now())
        if latest != self._floor():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_synced(self._path, f"{latest.isoformat()}\n".encode(), mode=0o644)

    def _floor(self) -> datetime | None:
        try:
            floor = datetime.fromisoformat(self._path.read_text(encoding="ascii").strip())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            floor = None
        if floor is None or floor.tzinfo is None:
            raise SettingsError(f"{self._path} cannot be read as a time. Remove it if it is damaged.", param="trust")
        return floor
