"""Puts console and admin API together from the parts of a router."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from router.admin.api import AdminApi, AdminParts
from router.admin.decisions import Decisions
from router.admin.fleet_view import FleetView
from router.admin.pages import Pages
from router.admin.pulse import Family, Pulse
from router.admin.routes import admin_routes
from router.admin.session import SessionDesk
from router.fleet.devices import Devices
from router.fleet.drains import Drains
from router.http.application import Handlers
from router.http.inference import InferenceParts
from router.http.signin import SignIns
from router.rulebook.follow import PolicyFollower


class Admin:
    """`routes` to add to the router's application, and the `pulse` that keeps the live views up to date."""

    def __init__(
        self,
        handlers: Handlers,
        signins: SignIns,
        parts: InferenceParts,
        policies: PolicyFollower,
        devices: Devices,
        drains: Drains,
        stale_after_ms: Callable[[], int],
        audit_folder: Path,
        family: Family | None = None,
    ) -> None:
        view = FleetView(parts.directory, devices, drains, parts.traffic, stale_after_ms)
        decisions = Decisions(audit_folder, lambda: policies.policy, alone=family is None)
        self.pulse = Pulse(view, parts.directory, decisions, parts.lifecycle, parts.clock, family)
        parts.audit.listen(self.pulse.hear)
        api = AdminApi(
            AdminParts(
                doorkeeper=parts.doorkeeper,
                lifecycle=parts.lifecycle,
                pulse=self.pulse,
                view=view,
                decisions=decisions,
                drains=drains,
                policies=policies,
                explain=handlers.explain,
                feedback=handlers.feedback,
            )
        )
        desk, pages = SessionDesk(parts.doorkeeper, signins), Pages(parts.doorkeeper)
        self.routes = admin_routes(parts.doorkeeper, api, desk, handlers.devices, pages)
