"""Keeps one engine process serving a plan: starts, proves and watches it, starts it again, swaps it for another.

A swap is blue-green: the new process is started and proven beside the old one, takes over for every request that comes
after, and the old one ends when its last request has. Where memory does not allow two, the old one goes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from edge.memory.pressure import Step
from edge.packages.adapters.adapter import Adapter
from edge.runtime.checked_files import CheckedFiles
from edge.runtime.child import EngineChild, StartFailed, socket_folder
from edge.runtime.drafting import Drafting
from edge.runtime.facts import facts_of
from edge.runtime.handover import Handover, Retirement, Successor
from edge.runtime.launch import LAUNCHES
from edge.runtime.liveness import Doubt, LivenessRules, until_hung
from edge.runtime.plan import LORA, MINIMUM_CONTEXT_TOKENS, StaticPlan, steps_of
from edge.runtime.port import EngineConnection, EngineState, EngineStatus
from edge.runtime.restart import History, RestartPolicy, wait_before_restart_s
from edge.runtime.waiting import first_of, until_settled
from edge.scheduling.speculation import SpeculationMode
from edge.scheduling.tuning import Tuning
from shared import logs
from shared.clock import Clock
from shared.errors import AdapterRejected, NotReady, TrustError
from shared.errors import StartFailed as SwapFailed

_FAILED_RETRY_S = 60
_STOP_GRACE_S = 3.0
_START_LIMIT_S = 120.0
_DRAIN_LIMIT_S = 600.0
_SPECULATIVE_CRASHES = 2  # in a row; what it proposes may be what the engine dies of
ADAPTER_RANK_LIMIT = 64

_log = logs.get("edge.engine")


class SupervisedEngine:
    """An `Engine` (see port.py): a child process under supervision, for the whole life of the agent.

    The files are checked before each start: what they say and, once per file identity, their hashes. A file that fails
    is a final state (FAILED); a crash or an unready process is restarted with growing, jittered waits.
    """

    def __init__(
        self,
        plan: StaticPlan,
        *,
        clock: Clock,
        run_dir: Path,
        policy: RestartPolicy | None = None,
        liveness: LivenessRules | None = None,
        minimum_context_tokens: int = MINIMUM_CONTEXT_TOKENS,
        adapter_rank_limit: int = ADAPTER_RANK_LIMIT,
        start_limit_s: float = _START_LIMIT_S,
        stop_grace_s: float = _STOP_GRACE_S,
        drain_limit_s: float = _DRAIN_LIMIT_S,
        fraction: Callable[[], float] = random.random,
    ) -> None:
        self._plan = self._full = plan
        self._threads_ratio = 1.0
        self._minimum_context_tokens = minimum_context_tokens
        self._clock = clock
        self._run_dir = run_dir
        self._policy = policy or RestartPolicy()
        self._liveness = liveness or LivenessRules()
        self._doubt = Doubt()
        self._start_limit_s = start_limit_s
        self._stop_grace_s = stop_grace_s
        self._drain_limit_s = drain_limit_s
        self._fraction = fraction
        self._status = EngineStatus(EngineState.STOPPED)
        self._listeners: list[Callable[[EngineStatus], None]] = []
        self._child: EngineChild | None = None
        self._files = CheckedFiles(rank_limit=adapter_rank_limit)
        self._history = History()
        self._task: asyncio.Task[None] | None = None
        self._first_outcome = asyncio.Event()
        self._handover = Handover()
        self._swapping = asyncio.Lock()
        self._retirement = Retirement(drain_limit_s=drain_limit_s, stop_grace_s=stop_grace_s)

    @property
    def plan(self) -> StaticPlan:
        """The plan that is served, or will be at the next start."""
        return self._plan

    @property
    def status(self) -> EngineStatus:
        """State now."""
        return self._status

    def connection(self) -> EngineConnection:
        """Where to send requests. Raises NotReady while the engine does not serve."""
        return self._serving().connection

    @contextlib.contextmanager
    def using(self) -> Iterator[EngineConnection]:
        """Where to send one request, whose process no swap ends before the block has ended.

        Raises:
            NotReady: the engine does not serve now.
        """
        with self._serving().using() as connection:
            yield connection

    def heard(self) -> None:
        """See the port."""
        if self._child is not None:
            self._child.heard += 1

    def doubt(self) -> None:
        """See the port."""
        self._doubt.raise_()

    def subscribe(self, listener: Callable[[EngineStatus], None]) -> None:
        """Call `listener` after every change of state, in the event loop."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Start supervision; return once the first start has succeeded or failed.

        Raises:
            SettingsError: there can be no private folder for the engine's socket.
        """
        if self._task is not None:
            return
        folder = socket_folder(self._run_dir)
        self._first_outcome.clear()
        self._set(EngineState.STARTING)
        self._task = asyncio.create_task(self._supervise(folder))
        await self._first_outcome.wait()

    async def stop(self) -> None:
        """End every process: SIGTERM, then SIGKILL after a grace. Safe to call twice."""
        tasks = [task for task in (self._task, *self._retirement.tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None
        self._set(EngineState.STOPPED, pid=None)

    def steps(self) -> tuple[Step, ...]:
        """The ladder down from the plan that this engine was built with."""
        return steps_of(self._full, self._minimum_context_tokens)

    async def take_step(self, step: Step, *, overlap: bool) -> None:
        """Serve with the slots and the context of `step` from now on; raises as `swap`."""
        plan = self._full.shape(step.slots, step.context_tokens)
        await self._swap(lambda now: plan.in_mode(now.speculation).with_adapters(now.adapters), overlap=overlap)

    @property
    def speculates(self) -> bool:
        """See the port."""
        return self._plan.speculating is not None

    @property
    def drafting(self) -> Drafting | None:
        """See the port."""
        return self._full.drafting

    async def speculate(self, mode: SpeculationMode, *, overlap: bool = True) -> None:
        """See the port; raises as `swap`."""
        await self._swap(lambda now: now.in_mode(mode), overlap=overlap)

    async def tune(self, tuning: Tuning) -> None:
        """See the port; raises as `swap`."""
        before, self._full = self._full, self._full.tuned(tuning)
        try:
            await self._swap(lambda now: now.tuned(tuning), overlap=True)
        except BaseException:
            self._full = before
            raise

    @property
    def takes_adapters(self) -> bool:
        """See the port."""
        return LORA in self._full.features

    async def serve_adapters(self, adapters: tuple[Adapter, ...], *, overlap: bool) -> None:
        """See the port; raises as `swap`."""
        wanted = tuple(adapter.digest for adapter in adapters)
        await self._swap(lambda now: now.with_adapters(adapters), overlap=overlap)
        await until_settled(self._status, self._listeners)
        facts = self._status.facts
        if self._status.state is not EngineState.READY or facts is None or facts.adapters != wanted:
            raise SwapFailed("The engine did not start with the adapter.")

    def would_change_threads(self, ratio: float) -> bool:
        """See the port."""
        return self._plan.on_threads_of(self._full, ratio) is not self._plan

    async def use_threads(self, ratio: float) -> None:
        """See the port; raises as `swap`, and then leaves the share as it was."""
        before, self._threads_ratio = self._threads_ratio, ratio
        try:
            if self.would_change_threads(ratio):
                await self._swap(lambda now: now.on_threads_of(self._full, ratio), overlap=True)
        except BaseException:
            self._threads_ratio = before
            raise

    async def swap(self, plan: StaticPlan, *, overlap: bool = True) -> None:
        """Serve `plan` from now on, with the adapters that are loaded; return once requests go to it, or will as soon
        as it has started.

        With `overlap` nobody waits: the new process is proven before it takes over, and one that fails changes
        nothing. Without, requests are refused as not ready from now until the old process is unused and ended and the
        new one has started: the memory of both is never needed together.

        Raises:
            NotReady: the engine is stopped or has failed for good.
            StartFailed: the new process did not serve a token; the old one goes on.
            TrustError: the package is not what it was.
        """
        await self._swap(lambda now: plan.with_adapters(now.adapters), overlap=overlap)

    async def _swap(self, successor_of: Callable[[StaticPlan], StaticPlan], *, overlap: bool) -> None:
        async with self._swapping:
            plan = successor_of(self._plan)
            if self._threads_ratio < 1:
                plan = plan.on_threads_of(self._full, self._threads_ratio)
            supervising = self._task
            if supervising is None or supervising.done():
                raise NotReady("The engine does not run.", retry_after_s=self._status.retry_after_s)
            child = await self._proven(plan) if overlap else None
            successor = Successor(plan, child)
            self._handover.offer(successor)
            try:
                await first_of(successor.taken.wait(), asyncio.wait({supervising}))
            finally:
                if not successor.taken.is_set():
                    self._handover.take()
                    if child is not None:
                        await child.stop(self._stop_grace_s)
            if self._plan is not plan:
                raise NotReady("The engine ended during the swap.", retry_after_s=self._status.retry_after_s)
            shape = {"slots": plan.options.slots, "context_tokens": plan.options.context_tokens}
            _log.info("engine_swapped", **shape, adapters=len(plan.adapters), speculation=plan.speculation)

    def _serving(self) -> EngineChild:
        if self._status.state is not EngineState.READY or self._child is None:
            raise NotReady("The model is not ready.", retry_after_s=self._status.retry_after_s)
        return self._child

    async def _proven(self, plan: StaticPlan) -> EngineChild:
        """A process that serves `plan`, beside whatever runs."""
        try:
            child = await self._spawned(plan, socket_folder(self._run_dir))
        except OSError as error:
            raise SwapFailed(f"The engine process could not be started: {error.strerror}.") from None
        try:
            await child.prove(self._start_limit_s)
        except BaseException as failure:
            await child.stop(self._stop_grace_s)
            if isinstance(failure, StartFailed):
                raise SwapFailed(failure.reason) from None
            raise
        return child

    async def _supervise(self, folder: Path) -> None:
        """Run processes one after another until one fails for good. Cancelled by `stop`."""
        child: EngineChild | None = None
        try:
            while await self._run_once(folder, child) and await self._wait_for_next():
                child = self._adopted()
            _log.error("engine_failed", reason=self._status.reason)
            self._set(EngineState.FAILED, pid=None, retry_after_s=_FAILED_RETRY_S, replaced=False)
        finally:
            self._first_outcome.set()

    async def _wait_for_next(self) -> bool:
        """Wait as the policy asks, or until there is a successor; False when nothing shall be started any more."""
        if self._handover.waiting:
            return True
        wait_s = wait_before_restart_s(self._history, self._policy, fraction=self._fraction())
        if wait_s is None:
            return False
        _log.warning("engine_restarting", wait_s=round(wait_s, 3), reason=self._status.reason)
        self._set(EngineState.RESTARTING, pid=None, retry_after_s=max(1, math.ceil(wait_s)), replaced=False)
        self._first_outcome.set()
        await first_of(self._clock.sleep(wait_s), self._handover.offered())
        self._set(EngineState.RESTARTING, restarts=self._status.restarts + 1)
        return True

    def _adopted(self) -> EngineChild | None:
        """Make the successor's plan ours; its process, if it has one already."""
        successor = self._handover.take()
        if successor is None:
            return None
        self._plan, self._history = successor.plan, History()
        return successor.child

    async def _run_once(self, folder: Path, proven: EngineChild | None) -> bool:
        """One process from start to end or successor; False when another one would end the same way."""
        try:
            child = proven or await self._spawned(self._plan, folder)
        except AdapterRejected as error:
            self._give_up_adapters(error.message)
            return True
        except TrustError as error:
            self._status = replace(self._status, reason=error.message)
            return self._give_up_speculation(error.message)
        except OSError as error:  # no processes, descriptors or memory left: that can pass
            self._failed_start(f"The engine process could not be started: {error.strerror}.", refused=False)
            return True
        self._child, relieved = child, False
        try:
            if proven is None:
                await child.prove(self._start_limit_s)
            relieved = await self._serve(child) and self._handover.has_child
        except StartFailed as failure:
            self._failed_start(failure.reason, refused=failure.refused)
        finally:
            if relieved:
                self._retirement.retire(child)  # it stays in `_child` for the moment until its successor does
            else:
                self._child = None
                await child.stop(self._stop_grace_s)
        return True

    async def _serve(self, child: EngineChild) -> bool:
        """Serve until the child ends (False) or has a successor (True): at once, or when no request is left."""
        ready_ms = self._clock.now_ms()
        _log.info("engine_ready", pid=child.pid, restarts=self._status.restarts)
        self._set(EngineState.READY, facts=facts_of(self._plan), pid=child.pid, retry_after_s=1, replaced=False)
        self._first_outcome.set()
        hung = await self._until_hung(child)
        if child.running and self._handover.waiting:
            if not self._handover.has_child:
                self._set(EngineState.RESTARTING, retry_after_s=1, replaced=True)
                await child.unused(self._drain_limit_s)
            return True
        reason = hung or await child.exited()
        self._history = self._history.after_exit((self._clock.now_ms() - ready_ms) / 1000, self._policy)
        if self._history.failures >= _SPECULATIVE_CRASHES:
            self._give_up_speculation(reason)
        self._child = None
        self._set(EngineState.RESTARTING, pid=None, reason=reason)
        return False

    async def _until_hung(self, child: EngineChild) -> str | None:
        """Wait until the child has ended, has a successor (None), or hangs: then end it, and say why."""
        watch = asyncio.ensure_future(until_hung(child, self._doubt, self._liveness, self._clock))
        try:
            await first_of(child.ended(), self._handover.offered(), asyncio.wait({watch}))
            if not watch.done() or not child.running or self._handover.waiting:
                return None
            child.kill()
            await child.ended()
            return watch.result()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _spawned(self, plan: StaticPlan, folder: Path) -> EngineChild:
        async with self._files.opened(plan) as opened:
            launch = LAUNCHES[plan.package.manifest.model.format]
            return await EngineChild.spawn(launch, plan.options, opened.files, folder, opened.adapters, opened.draft)

    def _give_up_adapters(self, reason: str) -> None:
        """Go on without adapters: the model served before them."""
        _log.error("adapters_given_up", count=len(self._plan.adapters), reason=reason)
        self._plan = self._plan.with_adapters(())
        self._status = replace(self._status, reason=reason)

    def _give_up_speculation(self, reason: str) -> bool:
        """Decode plainly from the next start on, if this one does not; the model serves so as well."""
        if self._plan.speculation is SpeculationMode.OFF:
            return False
        _log.error("speculation_given_up", mode=self._plan.speculation, reason=reason)
        self._plan = self._plan.in_mode(SpeculationMode.OFF)
        return True

    def _failed_start(self, reason: str, *, refused: bool) -> None:
        if refused and self._give_up_speculation(reason):
            return
        if refused and self._plan.adapters:
            self._give_up_adapters(reason)
            return
        self._history = self._history.after_failed_start(refused=refused)
        self._status = replace(self._status, reason=reason)

    def _set(self, state: EngineState, **changes: object) -> None:
        """Enter `state`; tell the listeners if that changes anything."""
        status = replace(self._status, state=state, **changes)  # type: ignore[arg-type]
        if status == self._status:
            return
        self._status = status
        for listener in list(self._listeners):
            listener(status)
