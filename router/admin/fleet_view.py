"""Shows the fleet to an operator: what decisions see, which devices joined, what is drained, which weights differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from router.fleet.devices import Devices, shown
from router.fleet.directory import FleetDirectory
from router.fleet.drains import Drains
from router.fleet.traffic import Traffic
from router.http.fleet import fleet_facts
from shared.fleet import FleetSnapshot

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
        self._directory = directory
        self._traffic = traffic
        self._stale_after_ms = stale_after_ms
        self._devices = devices
        self._drains = drains

    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        fleet = self._directory.snapshot()
        facts = fleet_facts(fleet, self._traffic.lately(fleet.taken_ms), self._stale_after_ms())
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
            "digest_mismatches": digest_mismatches(fleet),
            "drained": sorted(since),
        }
        return facts


def digest_mismatches(fleet: FleetSnapshot) -> list[dict[str, Any]]:
    """Models of one name with different weights: each group holds the backends that have the same. Where no digest is
    stated, nothing is said."""
    by_model: dict[str, dict[str, list[str]]] = {}
    for backend in fleet.backends:
        for model in backend.models:
            if model.digest is not None:
                by_model.setdefault(model.model_id, {}).setdefault(model.digest, []).append(backend.backend_id)
    return [
        {"model_id": model_id, "backends": sorted(sorted(group) for group in alike.values())}
        for model_id, alike in sorted(by_model.items())
        if len(alike) > 1
    ]
