"""Tells routers what this agent is and how busy: a pure builder of one beat, and the loop that sends it.

A beat goes out every second and right after every change. The router being away never disturbs the agent: it is
one log line when it goes and one when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from edge.devices.power import Power
from edge.runtime.port import EngineFacts, EngineState, EngineStatus
from edge.service.reporting import Outcome, Reporter
from edge.service.thermal.ladder import Measures
from edge.service.thermal.power import on_mains
from shared import logs
from shared.clock import Clock
from shared.fleet import BackendState, Heartbeat, ServedModel, ThermalLevel, Zone
from shared.telemetry import EdgeMetrics

PERIOD_S = 1.0
_CHANGE_GAP_S = 0.05
"""Changes within this time travel in one beat: a burst of requests is no burst of beats."""
_STATES = {
    EngineState.READY: BackendState.READY,
    EngineState.STARTING: BackendState.STARTING,
    EngineState.RESTARTING: BackendState.STARTING,
    EngineState.FAILED: BackendState.FAILED,
    EngineState.STOPPED: BackendState.DRAINING,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who reports; but for the address, which may change, it is fixed for the life of the process."""

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
    slot_wait_s: float | None
    turn_s: float | None
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    memory_available_bytes: int | None
    memory_admits: bool = True
    adapters: tuple[ServedModel, ...] = ()
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
        models=() if load.facts is None else (_model(load.facts), *load.adapters),
        level=load.level,
        temperature_c=load.temperature_c,
        derate_ratio=load.measures.derate_ratio,
        slots_total=load.slots_total,
        slots_busy=load.slots_busy,
        queued=load.queued,
        queue_limit=load.queue_limit,
        slot_wait_s=load.slot_wait_s,
        turn_s=load.turn_s,
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
    """Sends beats until told to stop."""

    def __init__(
        self,
        reporter: Reporter,
        identity: Callable[[], Identity | None],
        load: Callable[[], Load],
        *,
        clock: Clock,
        metrics: EdgeMetrics,
    ) -> None:
        """`identity` says who reports; None: no router could reach it, so nothing is sent."""
        self._reporter = reporter
        self._identity = identity
        self._load = load
        self._clock = clock
        self._metrics = metrics
        self._log = logs.get("heartbeat")
        self._changed = asyncio.Event()
        self._sending = asyncio.Lock()
        self._sequence = 0
        self._outcome: Outcome | None = None

    def changed(self) -> None:
        """Something in the beat is different: send one now."""
        self._changed.set()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._changed.clear()
            await self._beat()
            await self._next()

    @property
    def outcome(self) -> Outcome | None:
        """How the last beat ended; None before the first."""
        return self._outcome

    async def farewell(self) -> None:
        """One last beat, so that routers stop sending work at once; then connections are released."""
        await self._beat()
        await self._reporter.close()

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

    async def _beat(self) -> None:
        async with self._sending:
            identity = self._identity()
            if identity is None:
                return
            self._sequence += 1
            outcome = await self._reporter.report(build(identity, self._load(), self._sequence))
        self._metrics.heartbeats.labels(outcome=outcome).inc()
        if outcome is not self._outcome:
            log = self._log.info if outcome is Outcome.ACCEPTED else self._log.warning
            log("router_reports", outcome=outcome, before=self._outcome)
            self._outcome = outcome
