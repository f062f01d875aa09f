"""Takes heartbeats of edge agents and shows the fleet as decisions see it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from aiohttp import web
from pydantic import ValidationError

from router.fleet.devices import Devices
from router.fleet.directory import FleetDirectory
from router.fleet.parity import digest_mismatches, tokenizer_mismatches
from router.fleet.staleness import stale_backends
from router.fleet.traffic import Lately, Traffic
from router.fleet.watch import FleetWatch
from router.http.access import Doorkeeper
from shared.enrolment import SIGNATURE_HEADER
from shared.errors import InvalidRequest, OutOfOrder
from shared.fleet import BackendSnapshot, FleetSnapshot, Heartbeat
from shared.http.intake import read_body
from shared.keys import Scope
from shared.state.port import Signed

_BEAT_BYTES = 256 * 1024
_NOWHERE = re.compile(r"https?://(0\.0\.0\.0|\[::\])(:|/|$)")
_NOTHING = Lately(0, None, None, None)


class Fleet:
    """Handlers below /fleet/v1."""

    def __init__(
        self,
        doorkeeper: Doorkeeper,
        watch: FleetWatch,
        directory: FleetDirectory,
        devices: Devices,
        traffic: Traffic,
        stale_after_ms: Callable[[], int],
    ) -> None:
        self._traffic = traffic
        self._stale_after_ms = stale_after_ms
        self._doorkeeper = doorkeeper
        self._devices = devices
        self._watch = watch
        self._directory = directory

    async def take_heartbeat(self, request: web.Request) -> web.Response:
        """204 when taken; 409 when a later one is known. The signature of an enrolled device stands for a key."""
        signature = request.headers.get(SIGNATURE_HEADER)
        if signature is None or not self._devices.knows(signature):
            self._doorkeeper.admit(request, Scope.FLEET_REPORT)
        raw = await read_body(request, limit_bytes=_BEAT_BYTES)
        try:
            heartbeat = Heartbeat.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or None
            raise InvalidRequest(f"Not a heartbeat: {first['type']}.", param=field) from None
        if _NOWHERE.match(heartbeat.url):  # whoever calls it reaches itself
            raise InvalidRequest("url must name the address at which the agent is reached.", param="url")
        self._devices.check(heartbeat.backend_id, raw, signature)
        signed = Signed(raw, signature) if signature is not None else None
        if not await self._watch.publish(heartbeat, signed):
            raise OutOfOrder("A later heartbeat of this backend is known.")
        return web.Response(status=204)

    async def show(self, request: web.Request) -> web.Response:
        """The live snapshot."""
        self._doorkeeper.admit(request, Scope.ADMIN)
        fleet = self._directory.snapshot()
        facts = fleet_facts(fleet, self._traffic.lately(fleet.taken_ms), self._stale_after_ms())
        return web.Response(body=orjson.dumps(facts), content_type="application/json")


def fleet_facts(fleet: FleetSnapshot, lately: Mapping[str, Lately], stale_after_ms: int) -> dict[str, Any]:
    """The snapshot as JSON values; ages instead of clock readings. Traffic is that of the process that answers."""
    stale = frozenset(stale_backends(fleet, stale_after_ms))
    incumbent = fleet.incumbent
    return {
        "backends": [
            {
                **_backend(each, fleet.taken_ms),
                "stale": each.backend_id in stale,
                **_traffic(lately.get(each.backend_id, _NOTHING)),
            }
            for each in fleet.backends
        ],
        "tier_in_use": incumbent.tier if incumbent else None,
        "digest_mismatches": [
            {"model_id": each.model_id, "backends": [list(alike) for alike in each.groups]}
            for each in digest_mismatches(fleet)
        ],
        "tokenizer_mismatches": [
            {"model_id": each.model_id, "backends": [list(alike) for alike in each.groups]}
            for each in tokenizer_mismatches(fleet)
        ],
    }


def _traffic(lately: Lately) -> dict[str, Any]:
    return {
        "attempts_5min": lately.attempts,
        "share_ratio": lately.share_ratio,
        "last_reason": lately.last_reason,
        "last_rejection": lately.last_rejection,
    }


def _backend(backend: BackendSnapshot, now_ms: int) -> dict[str, Any]:
    cooling = backend.cooling_until_ms
    return {
        "backend_id": backend.backend_id,
        "zone": backend.zone,
        "tier": backend.zone.tier,
        "url": backend.url,
        "state": backend.state,
        "age_ms": None if backend.received_ms is None else max(0, now_ms - backend.received_ms),
        "models": [model.model_dump(mode="json") for model in backend.models],
        "level": backend.level,
        "derate_ratio": backend.derate_ratio,
        "temperature_c": backend.temperature_c,
        "seconds_to_throttle": backend.seconds_to_throttle,
        "speculation": backend.speculation,
        "slots_total": backend.slots_total,
        "slots_busy": backend.slots_busy,
        "queued": backend.queued,
        "queue_limit": backend.queue_limit,
        "slot_wait_s": backend.slot_wait_s,
        "turn_s": backend.turn_s,
        "prefill_tokens_per_s": backend.prefill_tokens_per_s,
        "decode_tokens_per_s": backend.decode_tokens_per_s,
        "ttft_ms": backend.ttft_ms,
        "output_cap_tokens": backend.output_cap_tokens,
        "breaker": backend.breaker,
        "cooling_ms": None if cooling is None else max(0, cooling - now_ms),
        "in_flight": backend.in_flight,
    }
