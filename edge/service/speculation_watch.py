"""The loop that keeps speculation as the policy wants it: measured answers → decision → swap of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace

from edge.runtime.port import Engine, EngineState
from edge.scheduling.speculation import (
    Rate,
    Reason,
    RequestKind,
    SpeculationFacts,
    SpeculationMode,
    SpeculationPolicy,
    SpeculationState,
    decide_speculation,
    failed,
)
from edge.service.rates import Timings
from shared import logs
from shared.clock import Clock
from shared.errors import IsthmusError, NotReady
from shared.fleet import ThermalLevel
from shared.windows import Ewma

_MIX_ALPHA = 0.1
_RATE_ALPHA = 0.2
_PAUSE_S = 0.05
_PLAIN_LIMIT_S = 5.0
"""How long a request that needs plain decoding waits for it once the engine was told."""
_URGENT = frozenset({Reason.THERMAL, Reason.VOCAB_MISMATCH, Reason.LOGPROBS})
"""What does not wait for room."""
_UNDER_WAY = frozenset({EngineState.STARTING, EngineState.RESTARTING})


@dataclass(frozen=True, slots=True)
class _Speed:
    """Mean speed of one mode on one kind of request, over so many tokens."""

    mean: Ewma = field(default_factory=Ewma)
    tokens: int = 0

    def updated(self, tokens_per_s: float, tokens: int) -> _Speed:
        return _Speed(self.mean.updated(tokens_per_s, alpha=_RATE_ALPHA), self.tokens + tokens)


class SpeculationWatch:
    """Keeps the mode in force; `on_change` is called in the event loop after every change of mode or reason.

    Swaps happen where a second engine fits beside the first (`has_room`): speculation is no reason to interrupt. Heat
    is, and so are log-probabilities: without room the old engine goes first, between two requests, while `alone` keeps
    those to come in the line.
    """

    def __init__(
        self,
        engine: Engine,
        policy: SpeculationPolicy,
        *,
        clock: Clock,
        level: Callable[[], ThermalLevel],
        has_room: Callable[[], bool],
        alone: Callable[[], AbstractAsyncContextManager[None]],
        interval_s: float,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._policy = policy
        self._clock = clock
        self._level = level
        self._has_room = has_room
        self._alone = alone
        self._interval_s = interval_s
        self._on_change = on_change
        self._log = logs.get("speculation")
        self._state = SpeculationState()
        self._reason = Reason.NOT_MEASURED if engine.speculates else Reason.NO_CANDIDATES
        self._speeds: dict[tuple[SpeculationMode, RequestKind], _Speed] = {}
        self._shares: dict[RequestKind, float] = {}
        self._acceptance: dict[SpeculationMode, Ewma] = {}
        self._unjudged = 0
        self._stepping = asyncio.Lock()
        self._plain_users = 0
        self._ending: asyncio.Task[None] | None = None
        drafting = engine.drafting
        self._unfit = frozenset({SpeculationMode.DRAFT} if drafting is not None and drafting.mismatch else ())

    @property
    def mode(self) -> SpeculationMode:
        """The mode in force."""
        return self._state.mode

    @property
    def reason(self) -> Reason:
        """Why it is."""
        return self._reason

    @property
    def unfit(self) -> frozenset[SpeculationMode]:
        """Modes that must not run."""
        return self._unfit

    @property
    def draft(self) -> dict[str, str | None] | None:
        """The draft model by name, and in what its vocabulary differs; then it never runs."""
        drafting = self._engine.drafting
        return None if drafting is None else {"model": drafting.package.name, "mismatch": drafting.mismatch}

    def record(self, kind: RequestKind, mode: SpeculationMode | None, timings: Timings) -> None:
        """Take in one finished answer; `mode` is None where it did not have the engine for itself, because company
        would count as slowness."""
        speed = timings.decode_tokens_per_s
        if speed is None:
            return
        if mode is None:
            self._unjudged += 1
            return
        self._unjudged = 0
        known = self._speeds.get((mode, kind), _Speed())
        self._speeds[mode, kind] = known.updated(speed, timings.decode_tokens)
        self._shares = {each: share * (1 - _MIX_ALPHA) for each, share in self._shares.items()}
        self._shares[kind] = self._shares.get(kind, 0.0) + _MIX_ALPHA
        if timings.drafted_tokens:
            ratio = timings.accepted_tokens / timings.drafted_tokens
            self._acceptance[mode] = self._acceptance.get(mode, Ewma()).updated(ratio, alpha=_RATE_ALPHA)

    async def run(self) -> None:
        """Decide and act until cancelled."""
        while self._engine.speculates:
            await self._clock.sleep(self._interval_s)
            await self.step()

    @asynccontextmanager
    async def plain(self) -> AsyncIterator[None]:
        """Have each token decoded by itself for as long as the block runs: of those that were proposed the engine tells
        no log-probabilities. To be entered without a slot, because the old engine may have to go first.

        Raises:
            NotReady: the engine goes on speculating.
        """
        self._plain_users += 1
        try:
            if self._speculating:
                await self._end()
            yield
        finally:
            self._plain_users -= 1

    @property
    def _speculating(self) -> bool:
        facts = self._engine.status.facts
        return facts is not None and facts.speculation is not SpeculationMode.OFF

    async def _end(self) -> None:
        """One swap for all who wait for it; it goes on for the others when one of them leaves."""
        if self._ending is None or self._ending.done():
            self._ending = asyncio.create_task(self.step())
        await asyncio.shield(self._ending)
        deadline_ms = self._clock.now_ms() + round(_PLAIN_LIMIT_S * 1000)
        while self._speculating:  # requests go to the new process in a moment
            if self._clock.now_ms() >= deadline_ms:
                raise NotReady("The engine could not be made to tell log-probabilities.", retry_after_s=1)
            await self._clock.sleep(_PAUSE_S)

    async def step(self) -> None:
        """One decision, and the swap that it asks for."""
        async with self._stepping:
            await self._step()

    async def _step(self) -> None:
        now_ms = self._clock.now_ms()
        self._follow(now_ms)
        decision = decide_speculation(self._state, self._facts(), self._policy, now_ms)
        if decision.mode is not self._state.mode and not await self._switched(decision.mode, decision.reason):
            self._state = failed(self._state, decision.mode, self._policy, now_ms)
            return
        if decision.mode is not self._state.mode:
            self._unjudged = 0
            if decision.reason is Reason.PROBE:  # a trial judges what is measured now, not what once was
                self._forget(decision.mode)
            elif decision.reason is Reason.NOT_MEASURED:  # nor does it count for a mode that was left unjudged
                self._forget(self._state.mode)
            self._log.info("speculation", mode=decision.mode, was=self._state.mode, reason=decision.reason)
        changed = (decision.mode, decision.reason) != (self._state.mode, self._reason)
        self._state, self._reason = decision.state, decision.reason
        if changed:
            self._on_change()

    def _forget(self, mode: SpeculationMode) -> None:
        self._speeds = {key: speed for key, speed in self._speeds.items() if key[0] is not mode}

    def _follow(self, now_ms: int) -> None:
        """An engine that gave up a mode by itself, such as a draft whose file is gone, has lost it for a while."""
        facts = self._engine.status.facts
        if facts is not None and facts.speculation is not self._state.mode:
            given_up = self._state.mode
            self._state = failed(replace(self._state, mode=facts.speculation), given_up, self._policy, now_ms)

    async def _switched(self, mode: SpeculationMode, reason: Reason) -> bool:
        """Swap the engine to `mode`; False where there is no room for it or it does not start."""
        has_room = self._has_room()
        if not has_room and reason not in _URGENT:
            return False
        try:
            if has_room:
                await self._engine.speculate(mode)
                return True
            async with self._alone():
                await self._engine.speculate(mode, overlap=False)
                while self._engine.status.state in _UNDER_WAY:
                    await self._clock.sleep(_PAUSE_S)
        except IsthmusError as error:
            self._log.warning("speculation_swap_failed", mode=mode, code=error.code)
            return False
        return True

    def _facts(self) -> SpeculationFacts:
        rates: Mapping[tuple[SpeculationMode, RequestKind], Rate] = {
            key: Rate(speed.mean.value, speed.tokens)
            for key, speed in self._speeds.items()
            if speed.mean.value is not None
        }
        acceptance = {mode: mean.value for mode, mean in self._acceptance.items() if mean.value is not None}
        return SpeculationFacts(
            level=self._level(),
            mix=dict(self._shares),
            rates=rates,
            acceptance_ratios=acceptance,
            unfit=self._unfit,
            unjudged=self._unjudged,
            log_probabilities=self._plain_users > 0,
        )
