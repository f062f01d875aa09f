"""Shows the fleet to an operator: what decisions see, which devices joined, what is drained, which weights differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from router.fleet.devices import Devices, shown
from router.fleet.directory import FleetDirectory
from router.fleet.drains import Drains
from router.fleet.traffic import Traffic
from router.http.fleet import fleet_facts

LISTED = 500
"""Backends that are shown one by one."""


class FleetView:
    """Puts it together from its sources."""

    def __init__(
        self,
        directory: FleetDirectory,
        devices: Devices,
        drains: Drains,
        traffic: Traffic,
        stale_after_ms: Callable[[], int],
    ) -> None:
        self.traffic = traffic
        self._directory = directory
        self._stale_after_ms = stale_after_ms
        self._devices = devices
        self._drains = drains

    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        fleet = self._directory.snapshot()
        facts = fleet_facts(fleet, self.traffic.lately(fleet.taken_ms), self._stale_after_ms())
        devices = shown(self._devices.all())
        names = {each["backend_id"]: each["device_id"] for each in devices if each["state"] == "active"}
        since = self._drains.since()
        backends = facts["backends"][:LISTED]
        for each in backends:
            each["device_id"] = names.get(each["backend_id"])
            each["drained_since_unix_s"] = since.get(each["backend_id"])
        facts |= {
            "backends": backends,
            "left_out": len(fleet.backends) - len(backends),
            "devices": devices,
            "drained": sorted(since),
        }
        return facts
