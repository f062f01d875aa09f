"""Keeps one engine process serving a plan: starts, proves and watches it, starts it again, says what happened."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from edge.packages.package import FileIdentity, check_digest, check_header, opened
from edge.runtime.child import EngineChild, StartFailed, private_folder
from edge.runtime.plan import StaticPlan
from edge.runtime.port import EngineConnection, EngineFacts, EngineState, EngineStatus
from edge.runtime.restart import History, RestartPolicy, wait_before_restart_s
from shared import logs
from shared.clock import Clock
from shared.errors import NotReady, SettingsError, TrustError

_FAILED_RETRY_S = 60
_STOP_GRACE_S = 3.0
_START_LIMIT_S = 120.0

_log = logs.get("edge.engine")


class SupervisedEngine:
    """An `Engine` (see port.py): a child process under supervision, for the whole life of the agent.

    The model file is checked before each start: its header and, once per file identity, its digest. A file that fails
    is a final state (FAILED); a crash or an unready process is restarted with growing, jittered waits.
    """

    def __init__(
        self,
        plan: StaticPlan,
        *,
        clock: Clock,
        run_dir: Path,
        policy: RestartPolicy | None = None,
        start_limit_s: float = _START_LIMIT_S,
        stop_grace_s: float = _STOP_GRACE_S,
        fraction: Callable[[], float] = random.random,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._run_dir = run_dir
        self._policy = policy or RestartPolicy()
        self._start_limit_s = start_limit_s
        self._stop_grace_s = stop_grace_s
        self._fraction = fraction
        self._status = EngineStatus(EngineState.STOPPED)
        self._listeners: list[Callable[[EngineStatus], None]] = []
        self._child: EngineChild | None = None
        self._verified: FileIdentity | None = None
        self._history = History()
        self._task: asyncio.Task[None] | None = None
        self._first_outcome = asyncio.Event()

    @property
    def status(self) -> EngineStatus:
        """State now."""
        return self._status

    def connection(self) -> EngineConnection:
        """Where to send requests.

        Raises:
            NotReady: the engine does not serve now.
        """
        if self._status.state is not EngineState.READY or self._child is None:
            raise NotReady("The model is not ready.", retry_after_s=self._status.retry_after_s)
        return self._child.connection

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
        folder = _socket_folder(self._run_dir)
        self._first_outcome.clear()
        self._set(EngineState.STARTING)
        self._task = asyncio.create_task(self._supervise(folder))
        await self._first_outcome.wait()

    async def stop(self) -> None:
        """End the process: SIGTERM, then SIGKILL after a grace. Safe to call twice."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._set(EngineState.STOPPED, pid=None)

    async def _supervise(self, folder: Path) -> None:
        """Run processes one after another until one fails for good. Cancelled by `stop`."""
        try:
            while await self._run_once(folder):
                wait_s = wait_before_restart_s(self._history, self._policy, fraction=self._fraction())
                if wait_s is None:
                    break
                _log.warning("engine_restarting", wait_s=round(wait_s, 3), reason=self._status.reason)
                self._set(EngineState.RESTARTING, pid=None, retry_after_s=max(1, math.ceil(wait_s)))
                self._first_outcome.set()
                await self._clock.sleep(wait_s)
                self._set(EngineState.RESTARTING, restarts=self._status.restarts + 1)
            _log.error("engine_failed", reason=self._status.reason)
            self._set(EngineState.FAILED, pid=None, retry_after_s=_FAILED_RETRY_S)
        finally:
            self._first_outcome.set()

    async def _run_once(self, folder: Path) -> bool:
        """One process from start to end; False when another one would end the same way."""
        try:
            child = await self._spawned(folder)
        except TrustError as error:
            self._status = replace(self._status, reason=error.message)
            return False
        except OSError as error:  # no processes, descriptors or memory left: that can pass
            self._failed_start(f"The engine process could not be started: {error.strerror}.", refused=False)
            return True
        self._child = child
        try:
            await self._serve(child)
        except StartFailed as failure:
            self._failed_start(failure.reason, refused=failure.refused)
        finally:
            self._child = None
            await child.stop(self._stop_grace_s)
        return True

    async def _serve(self, child: EngineChild) -> None:
        """Prove the child, then wait for its end."""
        await child.prove(self._start_limit_s)
        ready_ms = self._clock.now_ms()
        _log.info("engine_ready", pid=child.pid, restarts=self._status.restarts)
        self._set(EngineState.READY, facts=self._facts(), pid=child.pid, retry_after_s=1)
        self._first_outcome.set()
        reason = await child.exited()
        self._history = self._history.after_exit((self._clock.now_ms() - ready_ms) / 1000, self._policy)
        self._child = None
        self._set(EngineState.RESTARTING, pid=None, reason=reason)

    async def _spawned(self, folder: Path) -> EngineChild:
        # When `stop` cancels the check, closing the file ends the thread that still reads it.
        with opened(self._plan.package) as fd:
            await asyncio.to_thread(self._check, fd)
            return await EngineChild.spawn(self._plan.options, fd, folder)

    def _check(self, fd: int) -> None:
        identity = FileIdentity.of(fd)
        check_header(self._plan.package, fd)
        if identity != self._verified:
            check_digest(self._plan.package, fd)
            self._verified = identity

    def _failed_start(self, reason: str, *, refused: bool) -> None:
        self._history = self._history.after_failed_start(refused=refused)
        self._status = replace(self._status, reason=reason)

    def _facts(self) -> EngineFacts:
        plan = self._plan
        return EngineFacts(
            model_id=plan.package.name,
            digest=plan.package.digest,
            architecture=plan.geometry.architecture,
            slots=plan.options.slots,
            context_tokens=plan.options.context_tokens,
            vocabulary_tokens=plan.geometry.vocabulary_tokens,
            features=plan.features,
        )

    def _set(self, state: EngineState, **changes: object) -> None:
        """Enter `state`; tell the listeners if that changes anything."""
        status = replace(self._status, state=state, **changes)  # type: ignore[arg-type]
        if status == self._status:
            return
        self._status = status
        for listener in self._listeners:
            listener(status)


def _socket_folder(run_dir: Path) -> Path:
    try:
        return private_folder(run_dir)
    except OSError as error:
        raise SettingsError(
            f"The folder {run_dir} for the engine's socket cannot be made: {error.strerror}.", param="run_dir"
        ) from None
