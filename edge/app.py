"""Builds the edge agent from its settings and runs it: the only place where its parts meet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import Any

import uvloop
from prometheus_client import CollectorRegistry

from edge.adapter_service import adapter_service
from edge.devices.company import Company
from edge.enrolment import Enrolment, enrolment_in, reporter_of, router_url_of
from edge.heat import thermal_watch
from edge.packages.lease import lease
from edge.planning import Prepared, prepare, unvouched
from edge.presence import Presence
from edge.request_limits import request_limits
from edge.runtime.port import Engine, EngineState, EngineStatus
from edge.runtime.supervisor import SupervisedEngine
from edge.service import surface
from edge.service.admission import Admission
from edge.service.calibration import Calibration
from edge.service.counting import Counting
from edge.service.embedding import Embeddings
from edge.service.engine_client import EngineClient
from edge.service.gauges import Gauges
from edge.service.generation import Generation
from edge.service.heartbeat import HeartbeatSender, Load, build
from edge.service.rates import Rates
from edge.service.relayed import RelayedMetrics
from edge.service.served import Served
from edge.service.thermal.threads import ThreadsFollower
from edge.service.tuning_watch import TuningWatch
from edge.settings import EdgeSettings
from edge.watches import memory_watch, speculation_watch
from shared import logs
from shared.clock import Clock, SystemClock
from shared.fleet import ServedModel, ThermalLevel
from shared.http.binding import bind
from shared.http.lifecycle import Lifecycle, serve
from shared.http.tracing import trace
from shared.telemetry import EdgeMetrics, new_registry
from shared.tracing.build import build_tracer


def run(settings: EdgeSettings) -> int:
    """Serve until a signal; the exit code.

    Raises:
        SettingsError: port, memory or another part of the machine does not allow the start.
        NotFound: the model is not installed.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings))


async def _run(settings: EdgeSettings) -> int:
    listener = bind(settings.host, settings.port, setting="edge.port")
    with contextlib.closing(listener):
        clock = SystemClock()
        prepared = await asyncio.to_thread(prepare, settings)
        plan = prepared.plan
        engine = SupervisedEngine(
            plan,
            clock=clock,
            run_dir=settings.engine_dir,
            minimum_context_tokens=settings.memory.minimum_context_tokens,
            adapter_rank_limit=settings.adapters.rank_limit,
        )
        agent = Agent(settings, engine, clock=clock, port=listener.getsockname()[1], prepared=prepared)
        with lease(plan.package.folder):
            async with agent.running():
                return await serve(
                    agent.web, listener, agent.lifecycle, component="edge", drain_limit_s=settings.drain_limit_s
                )


_MEASURABLE = frozenset({ThermalLevel.NOMINAL, ThermalLevel.UNKNOWN})
"""A device that cannot tell its heat is measured too: some seconds of work are what every answer costs it."""


class Agent:
    """One edge agent: an engine, the service over it, and the loops beside it."""

    def __init__(
        self, settings: EdgeSettings, engine: Engine, *, clock: Clock, port: int, prepared: Prepared | None = None
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._clock = clock
        self._log = logs.get("edge")
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = False
        registry = new_registry()
        metrics = EdgeMetrics(registry)
        self.lifecycle = Lifecycle()
        self.client = EngineClient(engine)
        self.served = Served(engine, self.client)
        self.admission = Admission(
            slots=settings.slots, queue_limit=settings.queue, clock=clock, on_change=self._on_admission
        )
        self.thermal = thermal_watch(
            settings.thermal, clock, busy_ratio=lambda: self.admission.busy_ratio, on_change=self._on_level
        )
        self.threads = self._threads_follower()
        self.rates = Rates(on_decoded=self.thermal.generated)
        self.memory = memory_watch(settings.memory, engine, clock, self._on_memory)
        self.adapters = adapter_service(
            settings,
            engine,
            self.served,
            self.memory,
            clock=clock,
            metrics=metrics,
            warn=unvouched,
            on_change=self._changed,
        )
        self._gauges = Gauges(metrics, self.admission, self.thermal, self.memory)
        self.speculation = speculation_watch(
            settings.speculation, engine, self.thermal, self.memory, self.admission, clock, self._on_speculation
        )
        self._show_speculation()
        self.tuning = self._tuning_watch(prepared)
        self._calibration = Calibration(self.client, self.admission, self.rates)
        joined = enrolment_in(settings.enrolment_dir)
        self._router_url = router_url_of(settings, joined)
        self._presence = Presence(settings, joined, port=port, clock=clock, on_change=self._changed)
        self.heartbeat = self._heartbeat(metrics, joined)
        self.parts = self._parts(registry, metrics)
        self.web = surface.build(self.parts, keys=settings.api_keys)
        tracer = build_tracer(settings.tracing, tier="edge", on_spans=metrics.spans_ended_as)
        flush_limit_s = min(settings.tracing.flush_limit_s, settings.drain_limit_s)
        trace(self.web, tracer, flush_limit_s=flush_limit_s, also=surface.OLLAMA_ROUTES)
        engine.subscribe(self._on_engine)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Engine and loops run for as long as the block does. A loop that fails ends the block with its error."""
        try:
            async with asyncio.TaskGroup() as group:
                loops = [group.create_task(loop) for loop in self._loops()]
                try:
                    yield
                finally:
                    for task in (*loops, *self._tasks):
                        task.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            self._leaving = True
            if self.heartbeat is not None:
                await self.heartbeat.farewell()
            await self._engine.stop()
            self.adapters.close()
            await self.client.close()

    def load(self) -> Load:
        """What a heartbeat says now."""
        return Load(
            engine=self._engine.status,
            facts=self.served.facts,
            draining=self.lifecycle.draining or self._leaving,
            level=self.thermal.level,
            measures=self.thermal.measures,
            temperature_c=self.thermal.temperature_c,
            power=self.thermal.power,
            seconds_to_throttle=self.thermal.seconds_to_next_level,
            watts=self.thermal.watts,
            joules_per_token=self.thermal.joules_per_token,
            slots_total=self.admission.limit,
            slots_busy=self.admission.busy,
            queued=self.admission.queued,
            queue_limit=self.admission.queue_limit,
            slot_wait_s=self.admission.told_wait_s,
            turn_s=self.admission.told_turn_s,
            prefill_tokens_per_s=self.rates.prefill_tokens_per_s,
            decode_tokens_per_s=self.rates.decode_tokens_per_s,
            memory_available_bytes=self.memory.available_bytes,
            memory_admits=self.memory.admits,
            adapters=self._adapter_models(),
        )

    def status(self) -> dict[str, Any]:
        """What `isthmus edge ps` shows."""
        engine = self._engine.status
        reason = surface.readiness(self.parts)
        beat = build(self._presence.identity or self._presence.local, self.load(), sequence=0)
        return {
            "ready": reason is None,
            "not_ready_reason": reason.code if reason is not None else None,
            "engine": {
                "state": engine.state,
                "pid": engine.pid,
                "restarts": engine.restarts,
                "cause": engine.reason,
            },
            "computes": dict(engine.facts.computes) if engine.facts is not None else {},
            "tuning": {"state": self.tuning.standing.state, "share_done": self.tuning.standing.share_done},
            "speculation": {
                "mode": self.speculation.mode,
                "reason": self.speculation.reason,
                "draft": self.speculation.draft,
            },
            "sensors": dict(self.thermal.sensors),
            "threads_ratio": self.threads.ratio,
            "memory": {
                "available_bytes": self.memory.available_bytes,
                "steps_down": self.memory.rung,
                "admits": self.memory.admits,
            },
            "router": {
                "url": self._router_url or ("redis" if self._settings.router.redis is not None else None),
                "reports": self.heartbeat.outcome if self.heartbeat is not None else "off",
            },
            **beat.model_dump(mode="json", exclude={"version", "sequence", "speculation"}),
        }

    def _adapter_models(self) -> tuple[ServedModel, ...]:
        facts = self.served.facts
        if facts is None:
            return ()
        return self.adapters.models(facts.context_tokens, tuple(sorted(facts.features)))

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        loops = [
            self._engine.start(),
            self.thermal.run(),
            self.memory.run(),
            self.threads.run(),
            self.tuning.run(),
            self.adapters.watch(),
            self._announce_drain(),
        ]
        if self._settings.speculation.mode == "auto":
            loops.append(self.speculation.run())
        return loops if self.heartbeat is None else [*loops, self._presence.run(), self.heartbeat.run()]

    async def _announce_drain(self) -> None:
        await self.lifecycle.drain_started.wait()
        self._changed()

    def _on_engine(self, status: EngineStatus) -> None:
        self._gauges.engine(status)
        self.adapters.follow(status)
        if status.state is EngineState.READY:
            task = asyncio.create_task(self._on_ready())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._changed()

    async def _on_ready(self) -> None:
        facts = await self.served.refresh()
        if facts is None:
            return
        self.admission.resize(facts.slots)
        self._changed()
        if self.rates.decode_tokens_per_s is None:
            await self._calibration.run(facts)
            self._changed()

    def _threads_follower(self) -> ThreadsFollower:
        return ThreadsFollower(
            self._engine,
            lambda: self.thermal.measures.threads_ratio,
            has_room=lambda: self.memory.has_room,
            clock=self._clock,
            dwell_s=self._settings.thermal.scaled_dwell_s,
        )

    def _tuning_watch(self, prepared: Prepared | None) -> TuningWatch:
        return TuningWatch(
            self._engine,
            prepared.tuning_job if prepared is not None else None,
            known=prepared is not None and prepared.tuning_known,
            quiet=partial(self._can_be_measured, Company(self._clock)),
            settle_s=self._settings.engine.tune_after_s,
            clock=self._clock,
        )

    def _can_be_measured(self, company: Company) -> bool:
        """Nobody wants the engine, and neither heat, memory nor other programs speak against work that nobody asked
        for."""
        idle = not self.admission.busy and not self.admission.queued and not self.lifecycle.draining
        return (
            idle
            and self._engine.status.state is EngineState.READY
            and self.thermal.level in _MEASURABLE
            and self.memory.has_room
            and not company.is_heavy
        )

    def _on_level(self) -> None:
        self._apply_limits()
        self._gauges.thermal()
        self._changed()

    def _on_memory(self) -> None:
        self._apply_limits()
        self._gauges.memory()
        self._changed()

    def _apply_limits(self) -> None:
        """What heat and memory leave of admission together: the stricter of the two."""
        measures, slots = self.thermal.measures, self.memory.step.slots
        self.admission.restrict(slots if measures.slot_limit is None else min(slots, measures.slot_limit))
        if not measures.admits:
            self.admission.close(partial(surface.thermal_critical, self._retry_after_hot_s))
        elif not self.memory.admits:
            self.admission.close(self.memory.critical)
        else:
            self.admission.open()

    def _on_admission(self) -> None:
        self._gauges.admission()
        self._changed()

    def _changed(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.changed()

    @property
    def _retry_after_hot_s(self) -> int:
        return max(1, round(self._settings.thermal.scaled_dwell_s))

    def _heartbeat(self, metrics: EdgeMetrics, joined: Enrolment | None) -> HeartbeatSender | None:
        reporter = reporter_of(self._settings, joined, self._clock)
        if reporter is None:
            return None
        presence = self._presence
        return HeartbeatSender(reporter, lambda: presence.identity, self.load, clock=self._clock, metrics=metrics)

    def _show_speculation(self) -> None:
        watch = self.speculation
        self._gauges.speculation(watch.mode, watch.reason, unfit=watch.unfit)

    def _on_speculation(self) -> None:
        self._show_speculation()
        self._changed()

    def _parts(self, registry: CollectorRegistry, metrics: EdgeMetrics) -> surface.Parts:
        return surface.Parts(
            engine=self._engine,
            served=self.served,
            generation=self._generation(metrics),
            embeddings=Embeddings(
                self.served,
                self.client,
                self.admission,
                self.lifecycle,
                request_limits(self._settings),
                metrics=metrics,
                clock=self._clock,
            ),
            counting=Counting(self.served, self.client, self.lifecycle, body_bytes=self._settings.limits.body_bytes),
            adapters=self.adapters,
            model=self._settings.model,
            thermal=self.thermal,
            memory=self.memory,
            lifecycle=self.lifecycle,
            clock=self._clock,
            registry=registry,
            relayed=RelayedMetrics(self.client, self.admission, sleeps=self._settings.engine.sleep_after_s > 0),
            status=self.status,
            retry_after_hot_s=self._retry_after_hot_s,
            adapter_limit_bytes=self._settings.adapters.limit,
            body_limit_bytes=self._settings.limits.body_bytes,
        )

    def _generation(self, metrics: EdgeMetrics) -> Generation:
        return Generation(
            self.served,
            self.client,
            self.admission,
            self.adapters,
            self.lifecycle,
            request_limits(self._settings),
            rates=self.rates,
            metrics=metrics,
            clock=self._clock,
            measures=lambda: self.thermal.measures,
            observe=self.speculation.record,
            plainly=self.speculation.plain,
        )
