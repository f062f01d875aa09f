"""Plays one scenario of simulated heat: clients that ask all the time, and an observer of the device."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from loadtests import prompts
from loadtests.demo.ask import ask
from loadtests.demo.control import Control
from loadtests.demo.expectations import Row, Situation
from loadtests.demo.fleet import Fleet, any_usable
from loadtests.demo.heat_story import Asked, Look
from loadtests.demo.stack import Found
from shared.errors import IsthmusError

_LIMIT = aiohttp.ClientTimeout(total=None, connect=5, sock_read=60)
_LOOK_S = 0.1
_KNOWN_LIMIT_S = 30.0
_PERSONAL_EVERY = 8
_TOKENS = 32
_COUNTED = 5_000_000
"""Numbers of prompts start here, so that no earlier run has warmed a cache for them."""


@dataclass(slots=True)
class Story:
    """What was seen, in model seconds."""

    scenario: str
    compression: float
    duration_s: float
    has_cloud: bool = False
    looks: list[Look] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)


async def play(found: Found, story: Story, *, clients: int, tell: Callable[[Look], None]) -> None:
    """Begin the scenario anew and follow it to its end; `tell` hears of each new level.

    Raises:
        IsthmusError: the stack does not come up, or says nothing any more.
    """
    control = found.control
    if control is None:
        raise IsthmusError("Simulated heat needs the control socket of isthmus up.")
    async with aiohttp.ClientSession(timeout=_LIMIT, headers=found.headers()) as http:
        fleet = Fleet(http, found.base_url)
        for tier in sorted(found.tiers):
            await fleet.wait(tier, any_usable, f"the router saw no usable {tier} backend", _KNOWN_LIMIT_S)
        story.has_cloud = bool(await fleet.backends("cloud"))
        run = _Run(found, story, http, fleet)
        await control.restart_heat()
        await run.until_end(clients, tell)


async def heat_of(control: Control) -> dict[str, Any]:
    """The scenario that the running stack simulates.

    Raises:
        IsthmusError: it simulates none.
    """
    heat = ((await control.state()) or {}).get("heat")
    if not isinstance(heat, dict):
        raise IsthmusError("The running stack simulates no heat. End it, or start it with isthmus up --heat ramp.")
    return heat


class _Run:
    def __init__(self, found: Found, story: Story, http: aiohttp.ClientSession, fleet: Fleet) -> None:
        self._found = found
        self._story = story
        self._http = http
        self._fleet = fleet
        self._began_s = time.monotonic()
        self._numbers = itertools.count(_COUNTED)

    async def until_end(self, clients: int, tell: Callable[[Look], None]) -> None:
        self._began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._ask_on())
            group.create_task(self._look_on(tell))

    @property
    def _now_s(self) -> float:
        return (time.monotonic() - self._began_s) * self._story.compression

    async def _ask_on(self) -> None:
        while self._now_s < self._story.duration_s:
            number = next(self._numbers)
            personal = number % _PERSONAL_EVERY == 0
            text = f"({number}) {prompts.PERSONAL if personal else prompts.PUBLIC}"
            sent_s = self._now_s
            row = Row("load", Situation.NORMAL, text, (), max_tokens=_TOKENS)
            observed = await ask(self._http, self._found.base_url, self._found.model, row)
            self._story.asked.append(Asked(sent_s, self._now_s, personal, observed))
            if observed.status != 200:
                await asyncio.sleep(_LOOK_S)  # a refusal comes at once, and is no reason to ask more often

    async def _look_on(self, tell: Callable[[Look], None]) -> None:
        looks = self._story.looks
        while self._now_s < self._story.duration_s:
            for backend in (await self._fleet.backends("edge")) or ():
                look = _look(self._now_s, backend)
                if not looks or looks[-1].level != look.level:
                    tell(look)
                looks.append(look)
            await asyncio.sleep(_LOOK_S)


def _look(at_s: float, backend: dict[str, Any]) -> Look:
    return Look(
        at_s=at_s,
        level=str(backend["level"]),
        derate_ratio=backend["derate_ratio"],
        speculation=backend.get("speculation"),
        slots=backend["slots_total"],
        temperature_c=backend.get("temperature_c"),
        seconds_to_throttle=backend.get("seconds_to_throttle"),
    )
