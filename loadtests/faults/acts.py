"""How each fault is begun and ended: through the launcher of this machine, the recorder, Redis, or given commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from loadtests.demo.fleet import is_cool, until
from loadtests.demo.heat import COOL_C, CRITICAL_C, SimulatedSensor
from loadtests.faults.stack import RecorderClient, Stack
from loadtests.settings import FaultCommand, FaultName, LoadtestSettings
from shared.errors import IsthmusError, SettingsError

_STEP_S = 0.5
_COMMAND_LIMIT_S = 120.0
_COOL_LIMIT_S = 60.0


class Act(Protocol):
    """A fault in hand."""

    async def begin(self, for_s: float) -> None:
        """Bring it about; it should last `for_s` seconds.

        Raises:
            IsthmusError: it could not be brought about.
        """

    async def end(self) -> None:
        """Take it back; safe when it was never begun or ended by itself."""


class TierDown:
    """A tier that the launcher ends and lets start again."""

    def __init__(self, stack: Stack, tier: str) -> None:
        self._stack, self._tier, self._down = stack, tier, False

    async def begin(self, for_s: float) -> None:
        """Kill the tier."""
        await self._stack.control.kill(self._tier)
        self._down = True

    async def end(self) -> None:
        """Let it start again."""
        if self._down:
            await self._stack.control.start(self._tier)
            self._down = False


class RouterRestart:
    """The router is asked to end, as a rolling update does it; the launcher starts it again."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    async def begin(self, for_s: float) -> None:
        """SIGTERM: running answers are finished, then the process ends."""
        tier = ((await self._stack.control.state()) or {}).get("tiers", {}).get("router", {})
        pid = tier.get("pid")
        if not isinstance(pid, int):
            raise IsthmusError("The launcher knows no process of the router.")
        os.kill(pid, signal.SIGTERM)

    async def end(self) -> None:
        """It comes back by itself."""


class HeatRamp:
    """A sensor that climbs from cool to critical in the first half of the fault and stays there; then it is cool."""

    def __init__(self, stack: Stack, tree: Path) -> None:
        self._stack, self._sensor, self._shown = stack, SimulatedSensor(tree), False
        self._climb: asyncio.Task[None] | None = None

    async def begin(self, for_s: float) -> None:
        """Begin to climb."""
        self._shown = True
        self._climb = asyncio.create_task(self._climbing(for_s / 2))

    async def end(self) -> None:
        """Cool down; the sensor goes once the ladder is down, because one that vanishes while hot holds the level."""
        if not self._shown:
            return
        if self._climb is not None:
            self._climb.cancel()
        self._sensor.show(COOL_C)

    async def leave(self) -> None:
        """Take the sensor away after the run."""
        if not self._shown:
            return
        with contextlib.suppress(IsthmusError):
            await until(self._is_cool, "the device had not cooled down", _COOL_LIMIT_S)
        self._sensor.remove()

    async def _is_cool(self) -> bool:
        return is_cool([each for each in await self._stack.backends() or () if each["zone"] != "cloud"])

    async def _climbing(self, for_s: float) -> None:
        steps = max(1, round(for_s / _STEP_S))
        for step in range(steps + 1):
            self._sensor.show(COOL_C + (CRITICAL_C - COOL_C) * step / steps)
            await asyncio.sleep(_STEP_S)


class RedisFrozen:
    """Redis answers nobody for a while (`CLIENT PAUSE … ALL`); it wakes by itself, also when the load test dies."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def begin(self, for_s: float) -> None:
        """Pause every client."""
        try:
            from redis.asyncio import Redis  # noqa: PLC0415 - this fault alone needs it
            from redis.exceptions import RedisError  # noqa: PLC0415
        except ImportError:
            raise SettingsError("The fault redis-frozen needs the package redis.", param="--fault") from None
        try:
            async with Redis.from_url(self._url, socket_timeout=5) as client:
                await client.client_pause(max(1, round(for_s * 1000)), all=True)
        except (RedisError, OSError, ValueError):
            raise IsthmusError("Redis did not take CLIENT PAUSE.") from None

    async def end(self) -> None:
        """It ends by itself: a paused Redis takes no command that would end it."""


class CloudSuffers:
    """A fault that the recorder plays in front of the cloud."""

    def __init__(self, recorder: RecorderClient, kind: str) -> None:
        self._recorder, self._kind = recorder, kind

    async def begin(self, for_s: float) -> None:
        """Play it."""
        await self._recorder.fault(self._kind, for_s=for_s)

    async def end(self) -> None:
        """Stop playing it."""
        await self._recorder.fault("none", for_s=0)


class Commanded:
    """A fault that commands of the settings bring about, such as kubectl."""

    def __init__(self, command: FaultCommand) -> None:
        self._command, self._begun = command, False

    async def begin(self, for_s: float) -> None:
        """Run the first command."""
        self._begun = True
        await _run(self._command.begin)

    async def end(self) -> None:
        """Run the second one."""
        if self._begun and self._command.end:
            await _run(self._command.end)
        self._begun = False


async def _run(words: tuple[str, ...]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        raise IsthmusError(f"The program {words[0]} of a fault command cannot be started.") from None
    try:
        code = await asyncio.wait_for(process.wait(), _COMMAND_LIMIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise IsthmusError(f"The fault command {words[0]} did not end within {_COMMAND_LIMIT_S:.0f} s.") from None
    if code != 0:
        raise IsthmusError(f"The fault command {words[0]} ended with code {code}.")


def act_for(name: FaultName, stack: Stack, settings: LoadtestSettings) -> Act:
    """The fault of that name on this stack; a command of the settings comes before all other ways.

    Raises:
        SettingsError: nothing here can bring it about; the message says what would.
    """
    if (command := settings.fault_commands.get(name)) is not None:
        return Commanded(command)
    act = _WAYS[name](stack, settings)
    if act is None:
        raise SettingsError(
            f"The fault {name} {_NEEDS[name]}, or a command in loadtest.fault_commands.", param="--fault"
        )
    return act


def _tier_down(tier: str) -> Callable[[Stack, LoadtestSettings], Act | None]:
    return lambda stack, _: TierDown(stack, tier) if stack.tier(tier) else None


def _heat(stack: Stack, settings: LoadtestSettings) -> Act | None:
    tree = settings.sensors or (Path(stack.launched["sensors"]) if stack.launched and stack.tier("edge") else None)
    return None if tree is None else HeatRamp(stack, tree)


def _redis(_: Stack, settings: LoadtestSettings) -> Act | None:
    return None if settings.redis is None else RedisFrozen(settings.redis)


def _cloud_killed(stack: Stack, _: LoadtestSettings) -> Act | None:
    if stack.recorder is not None:
        return CloudSuffers(stack.recorder, "killed")
    return TierDown(stack, "cloud") if stack.tier("cloud") else None


def _asleep(stack: Stack, _: LoadtestSettings) -> Act | None:
    return None if stack.recorder is None else CloudSuffers(stack.recorder, "cold")


def _restart(stack: Stack, _: LoadtestSettings) -> Act | None:
    return RouterRestart(stack) if stack.tier("router") else None


_WAYS: Mapping[FaultName, Callable[[Stack, LoadtestSettings], Act | None]] = {
    "edge-dies": _tier_down("edge"),
    "heat-ramp": _heat,
    "redis-frozen": _redis,
    "cloud-killed": _cloud_killed,
    "scale-to-zero": _asleep,
    "router-restart": _restart,
}
_UP = "needs a stack that isthmus up runs on this machine"
_NEEDS: Mapping[FaultName, str] = {
    "edge-dies": f"{_UP} with an edge tier",
    "heat-ramp": f"{_UP} with an edge tier, the setting loadtest.sensors",
    "redis-frozen": "needs the setting loadtest.redis",
    "cloud-killed": "needs a recorder before the cloud, a cloud tier of isthmus up on this machine",
    "scale-to-zero": "needs a recorder before the cloud",
    "router-restart": _UP,
}
