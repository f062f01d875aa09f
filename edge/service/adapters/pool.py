"""Holds the adapters that requests use: loads what is missing, once for all who wait, and counts who uses what.

A load is a swap to an engine process that has the adapter; requests that run go on in the old one. One load at a time,
in the order in which they were asked for. While one waits for room, requests for adapters that could make room wait
behind it, so that a busy adapter cannot keep another one out for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

from edge.packages.adapters.adapter import Adapter
from edge.packages.lease import lease
from edge.runtime.port import Engine, EngineStatus
from edge.service.adapters.resident import Limits, Load, Resident, Residents, TooLarge, plan_load, plan_unload
from shared import logs
from shared.errors import CapacityError, InvalidRequest, NotFound, NotReady, StartFailed, TrustError
from shared.telemetry import EdgeMetrics


class AdapterUnavailable(CapacityError):
    """An adapter cannot be loaded now: others in use hold the room, or the engine did not start with it."""

    default_code = "adapter_unavailable"


class AdapterPool:
    """All calls are made in one event loop."""

    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        *,
        wait_s: float,
        metrics: EdgeMetrics,
        may_overlap: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._wait_s = wait_s
        self._metrics = metrics
        self._may_overlap = may_overlap
        self._residents = Residents()
        self._adapters: dict[str, Adapter] = {}
        self._leases: dict[str, contextlib.ExitStack] = {}
        self._users: Counter[str] = Counter()
        self._leaving: frozenset[str] = frozenset()
        self._loads: dict[frozenset[str], asyncio.Task[None]] = {}
        self._order = asyncio.Lock()
        self._room_wanted: asyncio.Task[None] | None = None
        self._left = asyncio.Event()
        self._log = logs.get("adapters")

    @property
    def residents(self) -> Residents:
        """What is loaded now."""
        return self._residents

    def users(self, digest: str) -> int:
        """Requests that use that version now."""
        return self._users[digest]

    @contextlib.asynccontextmanager
    async def using(self, adapters: tuple[Adapter, ...]) -> AsyncIterator[None]:
        """Have `adapters` loaded together for as long as the block runs.

        Raises:
            AdapterUnavailable: others in use hold the room for too long, or the engine did not start with them.
            InvalidRequest: one is no longer what was registered, or too large for this device.
        """
        digests = [adapter.digest for adapter in adapters]
        if digests and await self._loaded(adapters):
            self._metrics.adapter_hits.inc()
        self._users.update(digests)
        if digests:
            self._residents = self._residents.used(digests)
        try:
            yield
        finally:
            self._users.subtract(digests)
            self._left.set()

    async def load(self, adapter: Adapter) -> None:
        """Have it loaded now; raises as `using`."""
        await self._loaded((adapter,))

    async def unload(self, name: str) -> None:
        """Let go of every version of `name`.

        Raises:
            NotFound: it is not loaded.
            AdapterUnavailable: requests use it now, or it is pinned.
        """
        async with self._order:
            plan = plan_unload(self._residents, name)
            if not plan.evicted:
                raise NotFound("That adapter is not loaded.", param="name", code="adapter_not_loaded")
            if name in self._residents.pinned:
                raise InvalidRequest("The adapter is pinned; unpin it first.", param="name", code="adapter_pinned")
            if any(self._users[each.digest] for each in plan.evicted):
                raise AdapterUnavailable("Requests use the adapter now.", param="name", code="adapter_in_use")
            await self._carry_out(plan)

    async def pin(self, adapter: Adapter) -> None:
        """Load it and keep it, and each version that follows it; raises as `load`."""
        await self._loaded((adapter,))
        self._residents = self._residents.pin(str(adapter.name))

    def unpin(self, name: str) -> None:
        """Keep it no longer than others.

        Raises:
            NotFound: it is not pinned.
        """
        if name not in self._residents.pinned:
            raise NotFound("That adapter is not pinned.", param="name", code="adapter_not_pinned")
        self._residents = self._residents.unpin(name)

    def follow(self, status: EngineStatus) -> None:
        """Take over what the engine says that it has: one that started anew may have had to leave adapters out."""
        if status.facts is not None and not self._order.locked():
            self._settle(self._residents.only(status.facts.adapters))

    def close(self) -> None:
        """Give back every version; the engine has ended."""
        self._settle(Residents())

    async def _loaded(self, adapters: tuple[Adapter, ...]) -> bool:
        """Return once all are loaded; whether they were already."""
        hit = True
        while True:
            behind = self._ahead_of(adapters)
            if behind is None and self._serves(adapters):
                return hit
            hit = False
            # Shielded: the load goes on for the others when the one who asked for it leaves.
            if behind is not None:
                await asyncio.wait({behind})  # how it ends is the business of those who asked for it
            else:
                await asyncio.shield(self._load_of(adapters))

    def _serves(self, adapters: tuple[Adapter, ...]) -> bool:
        digests = {adapter.digest for adapter in adapters}
        return self._residents.holds(digests) and not digests & self._leaving

    def _ahead_of(self, adapters: tuple[Adapter, ...]) -> asyncio.Task[None] | None:
        """The load that waits for room which these adapters could make."""
        pinned = all(str(adapter.name) in self._residents.pinned for adapter in adapters)
        return None if pinned or not self._serves(adapters) else self._room_wanted

    def _load_of(self, adapters: tuple[Adapter, ...]) -> asyncio.Task[None]:
        """The one load of exactly these adapters that is under way, begun if there is none."""
        key = frozenset(adapter.digest for adapter in adapters)
        task = self._loads.get(key)
        if task is None:
            task = self._loads[key] = asyncio.create_task(self._load(adapters))
            task.add_done_callback(lambda done: self._forget(key, done))
        return task

    def _forget(self, key: frozenset[str], done: asyncio.Task[None]) -> None:
        self._loads.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever waited has it; with nobody left to wait it is no news

    async def _load(self, adapters: tuple[Adapter, ...]) -> None:
        async with self._order:
            if self._residents.holds(adapter.digest for adapter in adapters):
                return
            self._adapters.update((adapter.digest, adapter) for adapter in adapters)
            plan = await self._room_for(adapters)
            outcome = "failed"
            try:
                await self._carry_out(plan)
                outcome = "loaded"
            finally:
                self._metrics.adapter_loads.labels(outcome=outcome).inc(len(plan.added))

    async def _room_for(self, adapters: tuple[Adapter, ...]) -> Load:
        wanted = tuple(Resident(each.digest, str(each.name), each.size_bytes) for each in adapters)
        try:
            async with asyncio.timeout(self._wait_s):
                while True:
                    self._left.clear()
                    plan = plan_load(self._residents, wanted, frozenset(+self._users), self._limits)
                    if isinstance(plan, Load):
                        return plan
                    if isinstance(plan, TooLarge):
                        raise self._too_large(plan)
                    self._room_wanted = asyncio.current_task()
                    await self._left.wait()
        except TimeoutError:
            raise AdapterUnavailable("Other adapters are in use and hold the room.", retry_after_s=5) from None
        finally:
            self._room_wanted = None

    async def _carry_out(self, plan: Load) -> None:
        """Swap to an engine with `plan.loaded`; if that fails, nothing has changed."""
        adapters = tuple(self._adapters[each.digest] for each in plan.loaded)
        leases = self._leased(plan)
        self._leaving = frozenset(each.digest for each in plan.evicted)
        try:
            await self._engine.serve_adapters(adapters, overlap=self._may_overlap())
        except (TrustError, StartFailed, NotReady) as error:
            self._log.warning("adapter_load_failed", code=error.code)
            if isinstance(error, TrustError):
                raise InvalidRequest(error.message, param=error.param, code=error.code) from None
            raise AdapterUnavailable(f"The adapter could not be loaded: {error.message}") from None
        else:
            self._leases.update(leases)
            leases = {}
            self._residents = self._residents.after(plan)
        finally:
            self._leaving = frozenset()
            for held in leases.values():
                held.close()
            facts = self._engine.status.facts
            self._settle(self._residents.only(facts.adapters) if facts is not None else self._residents)
        self._metrics.adapter_evictions.inc(len(plan.evicted))
        self._log.info("adapters_loaded", loaded=len(plan.loaded), added=len(plan.added), evicted=len(plan.evicted))

    def _leased(self, plan: Load) -> dict[str, contextlib.ExitStack]:
        """Holds every version that is added on the disk: an engine that crashed loads it again. All of them or none.

        Raises:
            NotFound: one was removed since it was asked for.
        """
        with contextlib.ExitStack() as held:
            leases = {each.digest: held.enter_context(contextlib.ExitStack()) for each in plan.added}
            for digest, stack in leases.items():
                stack.enter_context(lease(self._adapters[digest].folder))
            held.pop_all()
        return leases

    def _settle(self, residents: Residents) -> None:
        self._residents = residents
        kept = {each.digest for each in residents.loaded}
        for digest in self._leases.keys() - kept:
            self._leases.pop(digest).close()
        self._metrics.adapters_resident.set(len(kept))

    def _too_large(self, plan: TooLarge) -> InvalidRequest:
        return InvalidRequest(
            f"{plan.needed_count} adapters of {plan.needed_bytes} bytes would have to be loaded together; at most "
            f"{self._limits.count} of {self._limits.size_bytes} bytes may be (edge.adapters).",
            param="lora",
            code="adapters_too_large",
        )
