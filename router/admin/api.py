"""Handlers of /admin/v1: what is going on, why, and the few things that an operator may change."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from router.admin.decisions import KEPT, Decisions
from router.admin.fleet_view import FleetView
from router.admin.hub import event
from router.admin.live import KEPT_S
from router.admin.pulse import Pulse
from router.admin.session import answer
from router.audit.query import Wanted
from router.fleet.drains import Drains
from router.http.access import Doorkeeper
from router.http.explain import Explain
from router.http.feedback import Feedback, read_class
from router.policy.written import written_down
from router.rulebook.follow import PolicyFollower
from shared.errors import InvalidRequest
from shared.fleet import BackendId
from shared.http.events import open_stream
from shared.http.intake import read_object
from shared.http.lifecycle import Lifecycle
from shared.keys import ApiKey, Scope
from shared.openai.sse import KEEPALIVE
from shared.privacy import PrivacyClass

_BODY_BYTES = 4096
_SILENCE_S = 15.0
_CHECK_S = 1.0
_BACKEND_ID: TypeAdapter[str] = TypeAdapter(BackendId)


@dataclass(frozen=True, slots=True)
class AdminParts:
    """What the admin API reads and changes."""

    doorkeeper: Doorkeeper
    lifecycle: Lifecycle
    pulse: Pulse
    view: FleetView
    decisions: Decisions
    drains: Drains
    policies: PolicyFollower
    explain: Explain
    feedback: Feedback


class AdminApi:
    """All that is not about signing in."""

    def __init__(self, parts: AdminParts) -> None:
        self._parts = parts

    async def live(self, request: web.Request) -> web.Response:
        """The points of the last `seconds`, oldest first."""
        self._admit(request)
        seconds = _number(request, "seconds", KEPT_S, KEPT_S)
        return answer({"points": self._parts.pulse.live.points(seconds)})

    async def fleet(self, request: web.Request) -> web.Response:
        """Every backend, device and drain, and how warm each was."""
        self._admit(request)
        return answer(self._parts.view.facts() | {"temperature_traces": self._parts.pulse.traces.all()})

    async def list_decisions(self, request: web.Request) -> web.Response:
        """The newest decisions of a class, tier, outcome, key, model, rule, backend or reason."""
        self._admit(request)
        asked = request.query
        wanted = Wanted(
            privacy_class=_class(asked["class"]) if "class" in asked else None,
            tier=asked.get("tier"),
            backend=asked.get("backend"),
            outcome=asked.get("outcome"),
            rule=asked.get("rule"),
            key=asked.get("key"),
            model=asked.get("model"),
        )
        limit = _number(request, "limit", 100, KEPT)
        return answer({"decisions": await self._parts.decisions.rows(wanted, asked.get("reason"), limit)})

    async def decision(self, request: web.Request) -> web.Response:
        """One decision, explained."""
        self._admit(request)
        return answer(await self._parts.decisions.one(request.match_info["decision_id"]))

    async def correct(self, request: web.Request) -> web.Response:
        """Keep what an operator says about the class of any request."""
        key = self._admit(request, Scope.ADMIN)
        _, body = await read_object(request, limit_bytes=_BODY_BYTES)
        if body.keys() - {"class"}:
            raise InvalidRequest("There is the field class, and no other.")
        said = read_class(body.get("class"))
        return answer(await self._parts.feedback.keep(request.match_info["decision_id"], said, key, of_any_key=True))

    async def policy(self, request: web.Request) -> web.Response:
        """The policy in force, and whether the file as it is now was refused."""
        self._admit(request)
        policies = self._parts.policies
        return answer(
            {
                "digest": policies.policy.digest,
                "file": None if policies.path is None else str(policies.path),
                "refused": policies.fault,
                "policy": written_down(policies.policy),
            }
        )

    async def try_policy(self, request: web.Request) -> web.Response:
        """What would happen to a request, and why; it is sent nowhere and leaves no record."""
        key = self._admit(request)
        return answer(await self._parts.explain.explained(request, key))

    async def drain(self, request: web.Request) -> web.Response:
        """204; nothing new goes to that backend."""
        self._admit(request, Scope.ADMIN)
        await self._parts.drains.add(_backend_id(request))
        self._parts.pulse.beat()
        return web.Response(status=204)

    async def resume(self, request: web.Request) -> web.Response:
        """204; it is used again."""
        self._admit(request, Scope.ADMIN)
        await self._parts.drains.remove(_backend_id(request))
        self._parts.pulse.beat()
        return web.Response(status=204)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: `live` each second, `fleet` on change, `decision` for each request, `missed` where the
        reader was too slow. The stream ends when its sign-in does."""
        self._admit(request)
        by_cookie = "Authorization" not in request.headers and self._parts.doorkeeper.asks
        with self._parts.pulse.hub.watching() as watcher:
            response = await open_stream(request, {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
            await response.write(b"retry: 1000\n\n" + event("fleet", orjson.dumps(self._parts.view.facts())))
            silent_s = 0.0
            while not self._parts.lifecycle.draining:
                if by_cookie and self._parts.doorkeeper.signed_in(request) is None:
                    await response.write(event("signed_out", b"{}"))
                    break
                data = await watcher.next(_CHECK_S)
                silent_s = 0.0 if data else silent_s + _CHECK_S
                if silent_s >= _SILENCE_S:
                    data, silent_s = KEEPALIVE, 0.0
                if data:
                    await response.write(data)
            await response.write_eof()
        return response

    def _admit(self, request: web.Request, scope: Scope = Scope.ADMIN_READ) -> ApiKey | None:
        return self._parts.doorkeeper.admit(request, scope)


def _number(request: web.Request, name: str, default: int, most: int) -> int:
    given = request.query.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 7 and 1 <= int(given) <= most):
        raise InvalidRequest(f"{name} must be a whole number from 1 to {most}.", param=name)
    return int(given)


def _class(said: str) -> PrivacyClass:
    for each in PrivacyClass:
        if said == each.value:
            return each
    raise InvalidRequest(f"class must be one of {', '.join(PrivacyClass)}.", param="class")


def _backend_id(request: web.Request) -> str:
    try:
        return _BACKEND_ID.validate_python(request.match_info["backend_id"])
    except ValidationError:
        raise InvalidRequest("There can be no backend of that name.", param="backend_id") from None
