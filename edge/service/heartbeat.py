"""Tells the router what this agent is and how busy: a pure builder of one beat, and the loop that sends it.

A beat goes out every second and right after every change. The router being away never disturbs the agent: it is
one log line when it goes and one when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from edge.devices.power import Power
from edge.runtime.port import EngineFacts, EngineState, EngineStatus
from edge.service.thermal.ladder import Measures
from edge.service.thermal.power import on_mains
from shared import logs
from shared.clock import Clock
from shared.enrolment import SIGNATURE_HEADER
from shared.fleet import BackendState, Heartbeat, ServedModel, ThermalLevel, Zone
from shared.telemetry import EdgeMetrics

ROUTE = "/fleet/v1/heartbeats"
PERIOD_S = 1.0
_SEND_LIMIT_S = 1.0
_CHANGE_GAP_S = 0.05
"""Changes within this time travel in one beat: a burst of requests is no burst of beats."""
_STATES = {
    EngineState.READY: BackendState.READY,
    EngineState.STARTING: BackendState.STARTING,
    EngineState.RESTARTING: BackendState.STARTING,
    EngineState.FAILED: BackendState.FAILED,
    EngineState.STOPPED: BackendState.DRAINING,
}


Signer = Callable[[bytes], str]
"""Gives the signature header for the bytes of a beat."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who reports; fixed for the life of the process."""

    backend_id: str
    instance: str
    url: str
    zone: Zone


@dataclass(frozen=True, slots=True)
class Load:
    """How the agent is doing at one instant. None is not known."""

    engine: EngineStatus
    facts: EngineFacts | None
    draining: bool
    level: ThermalLevel
    measures: Measures
    temperature_c: float | None
    power: Power | None
    slots_total: int
    slots_busy: int
    queued: int
    queue_limit: int
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    memory_available_bytes: int | None
    memory_admits: bool = True
    seconds_to_throttle: float | None = None
    watts: float | None = None
    joules_per_token: float | None = None


def state_of(engine: EngineStatus, *, draining: bool) -> BackendState:
    """Whether the agent takes work; heat is reported by its level instead."""
    return BackendState.DRAINING if draining else _STATES[engine.state]


def build(identity: Identity, load: Load, sequence: int) -> Heartbeat:
    """The beat for one instant."""
    return Heartbeat(
        backend_id=identity.backend_id,
        instance=identity.instance,
        sequence=sequence,
        url=identity.url,
        zone=identity.zone,
        # Short of memory is as good as leaving: what runs goes on, nothing new is taken.
        state=state_of(load.engine, draining=load.draining or not load.memory_admits),
        models=() if load.facts is None else (_model(load.facts),),
        level=load.level,
        temperature_c=load.temperature_c,
        derate_ratio=load.measures.derate_ratio,
        slots_total=load.slots_total,
        slots_busy=load.slots_busy,
        queued=load.queued,
        queue_limit=load.queue_limit,
        prefill_tokens_per_s=load.prefill_tokens_per_s,
        decode_tokens_per_s=load.decode_tokens_per_s,
        output_cap_tokens=load.measures.output_cap_tokens,
        memory_available_bytes=load.memory_available_bytes,
        on_mains=on_mains(load.power),
        battery_percent=load.power.battery_percent if load.power is not None else None,
        speculation=_speculation(load),
        seconds_to_throttle=load.seconds_to_throttle,
        watts=load.watts,
        joules_per_token=load.joules_per_token,
    )


def _speculation(load: Load) -> str | None:
    """The mode in force; None while there is no engine."""
    return None if load.facts is None else load.facts.speculation


def _model(facts: EngineFacts) -> ServedModel:
    return ServedModel(
        model_id=facts.model_id,
        digest=facts.digest,
        context_tokens=facts.context_tokens,
        features=tuple(sorted(facts.features)),
        tokenizer=facts.tokenizer,
    )


class HeartbeatSender:
    """Sends beats to one router until told to stop."""

    def __init__(
        self,
        router_url: str,
        identity: Identity,
        load: Callable[[], Load],
        *,
        key: str | None,
        sign: Signer | None,
        clock: Clock,
        metrics: EdgeMetrics,
    ) -> None:
        self._url = router_url.rstrip("/") + ROUTE
        self._identity = identity
        self._load = load
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._sign = sign
        self._clock = clock
        self._metrics = metrics
        self._log = logs.get("heartbeat")
        self._changed = asyncio.Event()
        self._sending = asyncio.Lock()
        self._sequence = 0
        self._outcome: str | None = None

    def changed(self) -> None:
        """Something in the beat is different: send one now."""
        self._changed.set()

    async def run(self) -> None:
        """Beat until cancelled."""
        async with self._session() as session:
            while True:
                self._changed.clear()
                await self._beat(session)
                await self._next()

    @property
    def outcome(self) -> str | None:
        """How the last beat ended; None before the first."""
        return self._outcome

    async def farewell(self) -> None:
        """One last beat, so that the router stops sending work at once."""
        async with self._session() as session:
            await self._beat(session)

    async def _next(self) -> None:
        await self._clock.sleep(_CHANGE_GAP_S)
        pause = asyncio.ensure_future(self._clock.sleep(PERIOD_S - _CHANGE_GAP_S))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({pause, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pause, change):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _beat(self, session: aiohttp.ClientSession) -> None:
        async with self._sending:
            self._sequence += 1
            beat = build(self._identity, self._load(), self._sequence)
            outcome = await self._post(session, beat.model_dump_json().encode())
        self._metrics.heartbeats.labels(outcome=outcome).inc()
        if outcome != self._outcome:
            log = self._log.info if outcome == "accepted" else self._log.warning
            log("router_reports", outcome=outcome, before=self._outcome)
            self._outcome = outcome

    async def _post(self, session: aiohttp.ClientSession, raw: bytes) -> str:
        headers = self._headers | ({SIGNATURE_HEADER: self._sign(raw)} if self._sign is not None else {})
        try:
            async with session.post(self._url, data=raw, headers=headers) as response:
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            return "unreachable"
        if status < 300:
            return "accepted"
        return {401: "unauthorised", 403: "unauthorised", 409: "out_of_order"}.get(status, "refused")

    def _session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=_SEND_LIMIT_S)
        return aiohttp.ClientSession(timeout=timeout, trust_env=False, auto_decompress=False)
