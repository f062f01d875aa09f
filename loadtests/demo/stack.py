"""Finds the running stack, or starts one and ends it afterwards; and brings it into each situation and back."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from loadtests.demo.control import Control
from loadtests.demo.expectations import Situation
from loadtests.demo.fleet import Fleet, any_usable, is_cool, none_usable, until
from loadtests.demo.heat import COOL_C, CRITICAL_C, SimulatedSensor
from shared.errors import IsthmusError
from shared.launcher.preflight import SOCKET_NAME
from shared.launcher.settings import ReadyLimits, UpSettings
from shared.local_keys import local_key
from shared.settings import environment, load

Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="ISTHMUS_API_KEY",
        help="API key of scopes inference and admin:read, where the router wants one; default: what a router of this "
        "home leaves for its commands.",
    ),
]
DEFAULT_MODEL = "smollm2-135m-instruct"
_START_LIMIT_S = 900.0
"""A first start downloads a model and converts a checkpoint."""
_END_LIMIT_S = 60.0
_KNOWN_LIMIT_S = 30.0
_HEAT_LIMIT_S = 30.0
_COOL_LIMIT_S = 60.0
_GONE_LIMIT_S = 30.0
_BACK_LIMIT_S = {"edge": ReadyLimits().edge, "cloud": ReadyLimits().cloud}
"""A tier that starts again has the time that the launcher gives it to start."""


@dataclass(frozen=True, slots=True)
class Found:
    """A stack to send to. `control` and `sensors` are None where only an address is known."""

    base_url: str
    model: str
    control: Control | None
    sensors: Path | None
    tiers: frozenset[str]
    owned: bool
    """Whether the demo started it and will end it."""
    key: str | None = field(default=None, repr=False)
    """What its router is asked with."""

    def headers(self) -> dict[str, str]:
        """The key as a request carries it."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}


@contextlib.asynccontextmanager
async def running(
    url: str | None,
    config: Path | None,
    *,
    key: str | None = None,
    arguments: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[Found]:
    """The stack at `url`, else the one of `isthmus up` on this machine, else one that lives as long as the block.

    It is asked with `key`, or with what a router of this home left for its commands. `arguments` and `variables` of the
    environment are for a stack that is started here.
    """
    socket = load(UpSettings, "up", config).folder / SOCKET_NAME
    async with contextlib.AsyncExitStack() as stack:
        control = await stack.enter_async_context(Control(socket))
        state = await control.state()
        if url is not None:
            base_url = url.rstrip("/").removesuffix("/v1")
            is_ours = state is not None and _base_of(state) == base_url
            yield _with_key(_found(state, control, owned=False) if state and is_ours else _address_only(base_url), key)
            return
        owned = state is None
        if owned:
            await stack.enter_async_context(_started(control, config, arguments, variables or {}))
        yield _with_key(_found(await _settled(control), control, owned=owned), key)


@contextlib.asynccontextmanager
async def _started(
    control: Control, config: Path | None, arguments: tuple[str, ...], variables: Mapping[str, str]
) -> AsyncIterator[None]:
    """`isthmus up` as a child whose output goes to our standard error."""
    arguments += ("--config", str(config)) if config else ()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "shared.cli", "up", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=sys.stderr,
        env={**environment(), **variables},
        start_new_session=True,  # Ctrl-C is for the demo, which then ends the stack in order
    )

    async def listens() -> bool:
        if process.returncode is not None:
            raise IsthmusError(f"isthmus up ended with code {process.returncode}.")
        return await control.state() is not None

    try:
        await until(listens, "isthmus up did not open its control socket", _KNOWN_LIMIT_S)
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), _END_LIMIT_S)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _settled(control: Control) -> dict[str, Any]:
    """The state of the run once every tier of it is ready."""
    latest: dict[str, Any] = {}

    async def ready() -> bool:
        state = await control.state()
        if state is None:
            raise IsthmusError("isthmus up ended before every tier was ready.")
        latest.update(state)
        return all(tier["state"] == "ready" for tier in state["tiers"].values())

    await until(ready, "not every tier of isthmus up was ready", _START_LIMIT_S)
    return latest


def _base_of(state: dict[str, Any]) -> str:
    return str(state["endpoint"]).removesuffix("/v1")


def _found(state: dict[str, Any], control: Control, *, owned: bool) -> Found:
    tiers = frozenset(state["tiers"]) - {"router"}
    return Found(_base_of(state), state["model"], control, Path(state["sensors"]), tiers, owned)


def _address_only(base_url: str) -> Found:
    return Found(base_url, DEFAULT_MODEL, None, None, frozenset(), owned=False)


def _with_key(found: Found, key: str | None) -> Found:
    return replace(found, key=key or local_key(found.base_url, "commands"))


class Stage:
    """Brings the stack into a situation for the length of a block, and undoes it whatever happens in the block."""

    def __init__(self, found: Found, fleet: Fleet) -> None:
        self._found = found
        self._fleet = fleet

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Wait until the router sees every tier of the run; take the simulated sensor away at the end."""
        for tier in sorted(self._found.tiers):
            await self._fleet.wait(tier, any_usable, f"the router saw no usable {tier} backend", _KNOWN_LIMIT_S)
        try:
            yield
        finally:
            await self._take_sensor_away()

    @contextlib.asynccontextmanager
    async def set(self, situation: Situation) -> AsyncIterator[None]:
        """The block runs in `situation`."""
        settings: dict[Situation, Callable[[], AbstractAsyncContextManager[None]]] = {
            Situation.NORMAL: contextlib.nullcontext,
            Situation.DEVICE_CRITICAL: self._hot,
            Situation.EDGE_KILLED: lambda: self._killed("edge"),
            Situation.CLOUD_KILLED: lambda: self._killed("cloud"),
        }
        async with settings[situation]():
            yield

    @contextlib.asynccontextmanager
    async def _hot(self) -> AsyncIterator[None]:
        sensor = self._sensor()
        try:
            sensor.show(CRITICAL_C)
            await self._fleet.wait("edge", none_usable, "the device was not critical to the router", _HEAT_LIMIT_S)
            yield
        finally:
            sensor.show(COOL_C)
            await self._fleet.wait("edge", any_usable, "the cooled device took no work", _COOL_LIMIT_S)

    @contextlib.asynccontextmanager
    async def _killed(self, tier: str) -> AsyncIterator[None]:
        control = self._control()
        try:
            await control.kill(tier)
            await self._fleet.wait(tier, none_usable, f"the router still used the killed {tier} tier", _GONE_LIMIT_S)
            yield
        finally:
            await control.start(tier)
            # A stack that ends with the demo need not wait for the minute that a cloud tier takes; the edge is
            # needed by what follows.
            if tier == "edge" or not self._found.owned:
                what = f"the restarted {tier} tier took no work"
                await self._fleet.wait(tier, any_usable, what, _BACK_LIMIT_S[tier])

    async def _take_sensor_away(self) -> None:
        if self._found.sensors is None or not (self._found.sensors / "class").exists():
            return
        try:
            # A sensor that vanishes while hot would hold the level; the ladder comes down first.
            await self._fleet.wait("edge", is_cool, "the device had not cooled down", _COOL_LIMIT_S)
        finally:
            self._sensor().remove()

    def _sensor(self) -> SimulatedSensor:
        if self._found.sensors is None:
            raise IsthmusError("This stack has no simulated sensors.")
        return SimulatedSensor(self._found.sensors)

    def _control(self) -> Control:
        if self._found.control is None:
            raise IsthmusError("This stack has no control socket.")
        return self._found.control
