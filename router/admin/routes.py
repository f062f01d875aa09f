"""The routes of console and admin API, in one list, behind the check of where a request comes from."""

from __future__ import annotations

from aiohttp import web

from router.admin.api import AdminApi
from router.admin.origin import check_origin
from router.admin.pages import Pages
from router.admin.session import SessionDesk
from router.http.access import Doorkeeper
from router.http.devices import DeviceDesk
from shared.http.errors import Handler

PREFIX = "/admin/v1"


def admin_routes(
    doorkeeper: Doorkeeper, api: AdminApi, desk: SessionDesk, devices: DeviceDesk, pages: Pages
) -> list[web.RouteDef]:
    """What is added to the router's application."""
    listed: list[tuple[str, str, Handler]] = [
        ("GET", "/session", desk.show),
        ("POST", "/session", desk.sign_in),
        ("DELETE", "/session", desk.sign_out),
        ("GET", "/live", api.live),
        ("GET", "/events", api.events),
        ("GET", "/fleet", api.fleet),
        ("PUT", "/backends/{backend_id}/drain", api.drain),
        ("DELETE", "/backends/{backend_id}/drain", api.resume),
        ("GET", "/devices", devices.show),
        ("DELETE", "/devices/{device_id}", devices.revoke),
        ("POST", "/invitations", devices.invite),
        ("GET", "/decisions", api.list_decisions),
        ("GET", "/decisions/{decision_id}", api.decision),
        ("POST", "/decisions/{decision_id}/feedback", api.correct),
        ("GET", "/policy", api.policy),
        ("POST", "/policy/try", api.try_policy),
    ]
    return [
        web.get("/console", pages.root),
        web.get("/console/{path:.*}", pages.file),
        *(web.route(method, PREFIX + path, _guarded(handler, doorkeeper)) for method, path, handler in listed),
    ]


def _guarded(handler: Handler, doorkeeper: Doorkeeper) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        check_origin(request, asks_for_keys=doorkeeper.asks)
        return await handler(request)

    return handle
