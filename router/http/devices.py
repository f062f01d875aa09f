"""Enrols devices with a token, and lets an administrator invite, list and revoke them."""

from __future__ import annotations

from typing import TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from router.fleet.devices import Devices, shown
from router.fleet.watch import FleetWatch
from router.http.access import Doorkeeper
from shared.enrolment import Join, Joined
from shared.errors import InvalidRequest
from shared.http.intake import read_body
from shared.keys import Scope

_BODY_BYTES = 4096
_T = TypeVar("_T", bound=BaseModel)


class _Invite(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    valid_s: int = Field(default=3600, ge=1, le=30 * 24 * 3600)


class DeviceDesk:
    """Handlers of /fleet/v1/devices and /fleet/v1/invitations."""

    def __init__(self, doorkeeper: Doorkeeper, devices: Devices, watch: FleetWatch) -> None:
        self._doorkeeper = doorkeeper
        self._devices = devices
        self._watch = watch

    async def join(self, request: web.Request) -> web.Response:
        """201 with the device's name; the token in the body is what lets it in."""
        device = await self._devices.enrol(_read(Join, await read_body(request, limit_bytes=_BODY_BYTES)))
        answer = Joined(device_id=device.device_id, backend_id=device.backend_id)
        return web.Response(status=201, body=answer.model_dump_json().encode(), content_type="application/json")

    async def invite(self, request: web.Request) -> web.Response:
        """201 with a token, which is shown this once."""
        self._doorkeeper.admit(request, Scope.ADMIN)
        asked = _read(_Invite, await read_body(request, limit_bytes=_BODY_BYTES) or b"{}")
        body = {"token": await self._devices.invite(asked.valid_s), "valid_s": asked.valid_s}
        return web.Response(status=201, body=orjson.dumps(body), content_type="application/json")

    async def show(self, request: web.Request) -> web.Response:
        """All devices."""
        self._doorkeeper.admit(request, Scope.ADMIN)
        body = orjson.dumps({"devices": shown(self._devices.all())})
        return web.Response(body=body, content_type="application/json")

    async def revoke(self, request: web.Request) -> web.Response:
        """204; what the device reported last is forgotten at once."""
        self._doorkeeper.admit(request, Scope.ADMIN)
        device = await self._devices.revoke(request.match_info["device_id"])
        await self._watch.forget(device.backend_id)
        return web.Response(status=204)


def _read(kind: type[_T], raw: bytes) -> _T:
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        raise InvalidRequest(f"Not a valid body: {first['type']}.", param=field) from None
