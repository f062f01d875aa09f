"""Simulates the device's temperature through a sysfs-shaped sensor tree that the edge agent reads."""

from __future__ import annotations

import shutil
from pathlib import Path

CRITICAL_C = 105.0
"""Above any `critical_c` a device would be set to."""
COOL_C = 40.0
_ZONE = "class/thermal/thermal_zone0"


class SimulatedSensor:
    """One thermal zone under `root`. The agent takes the hottest of all its sensors, so real heat still counts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._zone = root / _ZONE

    def show(self, celsius: float) -> None:
        """Make the sensor read `celsius` from now on; a reader sees the old or the new value, never a half one."""
        self._zone.mkdir(parents=True, exist_ok=True)
        (self._zone / "type").write_text("isthmus-demo\n", encoding="ascii")
        half = self._zone / ".temp"
        half.write_text(f"{round(celsius * 1000)}\n", encoding="ascii")
        half.replace(self._zone / "temp")

    def remove(self) -> None:
        """Take the sensor away again."""
        shutil.rmtree(self._root / "class", ignore_errors=True)
