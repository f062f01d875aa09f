"""The engine as the service layer sees it: where it listens, whether it is ready, and why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from edge.memory.pressure import Step
from edge.packages.adapters.adapter import Adapter
from edge.packages.package import Package
from edge.runtime.drafting import Drafting
from edge.scheduling.speculation import SpeculationMode
from edge.scheduling.tuning import Tuning
from shared.errors import NotReady


class EngineState(StrEnum):
    """Life of an engine process."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """What the model's chat template can express."""

    tools: bool = False
    """It puts tools, calls and their results into the prompt."""
    system_role: bool = True


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a started engine serves: fixed for its whole life.

    `context_tokens` is per slot; `vocabulary_tokens` bounds token ids; `digest` is `sha256:` + 64 hex digits.
    """

    model_id: str
    digest: str
    architecture: str
    slots: int
    context_tokens: int
    vocabulary_tokens: int
    features: frozenset[str]
    speculation: SpeculationMode = SpeculationMode.OFF
    tokenizer: str | None = None
    """Fingerprint that other tiers compare with theirs (`shared.tokenizer`)."""
    adapters: tuple[str, ...] = ()
    """Digests of the adapters that are loaded."""
    embedding_input_tokens: int | None = None
    """Most tokens of a text that one vector is made of; None: the model makes none."""
    computes: Mapping[str, str | int | bool] = field(default_factory=dict, hash=False)
    """How it computes, by the engine's own names."""
    template: ChatTemplate = ChatTemplate()
    package: Package | None = field(default=None, hash=False, repr=False)
    """What was loaded."""


@dataclass(frozen=True, slots=True)
class AppliedAdapter:
    """An adapter that one request asks for, by its digest, and how strongly."""

    digest: str
    scale: float


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """State of the engine now. `reason` is the last crash or start failure in words without content; `replaced`: the
    process goes, or has gone, to make room for the next one, which is on its way."""

    state: EngineState
    facts: EngineFacts | None = None
    pid: int | None = None
    restarts: int = 0
    reason: str | None = None
    retry_after_s: int = 1
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class EngineConnection:
    """How to reach the engine's own HTTP server: a Unix socket in a private folder, plus its per-start secret."""

    base_url: str
    socket_path: Path | None
    headers: Mapping[str, str] = field(repr=False)
    adapters: tuple[str, ...] = ()
    """Digests of the adapters that this very process has loaded, in the order of its own numbers for them."""

    def lora(self, applied: tuple[AppliedAdapter, ...]) -> list[dict[str, int | float]]:
        """The engine's list for a request that applies these adapters and no other: each one that is loaded, by
        number, with its scale. An adapter that was left out, or an empty list, would let a request go on from another
        one's cached prompt.

        Raises:
            NotReady: one of them is not loaded there.
        """
        scales = {each.digest: each.scale for each in applied}
        if not scales.keys() <= set(self.adapters):
            raise NotReady("The adapter is no longer loaded.")
        return [{"id": number, "scale": scales.get(digest, 0.0)} for number, digest in enumerate(self.adapters)]


class Engine(Protocol):
    """A supervised engine process."""

    @property
    def status(self) -> EngineStatus:
        """State now."""

    def connection(self) -> EngineConnection:
        """Where to send requests.

        Raises:
            NotReady: the engine does not serve now; `retry_after_s` says when to ask again.
        """

    def using(self) -> AbstractContextManager[EngineConnection]:
        """The same, for a request: a swap does not end the process behind it before the block has ended.

        Raises:
            NotReady: as `connection`.
        """

    def heard(self) -> None:
        """Something that the engine computed has arrived: a sign of life."""

    def doubt(self) -> None:
        """An answer was waited for in vain: the engine is checked, and restarted if it computes nothing."""

    def subscribe(self, listener: Callable[[EngineStatus], None]) -> None:
        """Call `listener` after every change of state, in the event loop."""

    def steps(self) -> tuple[Step, ...]:
        """The ladder down from the plan that it was built with, which is the first step; see edge.memory.pressure."""

    async def take_step(self, step: Step, *, overlap: bool) -> None:
        """Serve with the slots and the context of `step` from now on; raises as `SupervisedEngine.swap`."""

    @property
    def speculates(self) -> bool:
        """Whether this engine knows ways of speculating."""

    @property
    def drafting(self) -> Drafting | None:
        """The draft model that was named for it, and whether it may draft."""

    async def speculate(self, mode: SpeculationMode, *, overlap: bool = True) -> None:
        """Decode in this way from now on, in whatever step is in force; raises as `SupervisedEngine.swap`."""

    async def tune(self, tuning: Tuning) -> None:
        """Compute with these threads, spinning and batch in this and every later step; raises as `swap`."""

    @property
    def takes_adapters(self) -> bool:
        """Whether this kind of engine can load any."""

    async def serve_adapters(self, adapters: tuple[Adapter, ...], *, overlap: bool) -> None:
        """Serve with exactly these adapters from now on, whatever step is in force; return once it does.

        Raises:
            AdapterRejected: one of them is not for this model, or not what was registered.
            StartFailed: the new process did not serve a token with each of them; the old one goes on.
            NotReady: the engine is stopped or has failed for good.
        """

    def would_change_threads(self, ratio: float) -> bool:
        """Whether `use_threads` with this ratio would swap: with few threads there is nothing to take away."""

    async def use_threads(self, ratio: float) -> None:
        """Compute with this share of the planned threads, at least one, in this and every later step, from now on;
        raises as `SupervisedEngine.swap`."""

    async def start(self) -> None:
        """Start supervision; return once the first start has succeeded or failed. Never raises for a bad model."""

    async def stop(self) -> None:
        """End the process: SIGTERM, then SIGKILL after a grace. Safe to call twice."""
