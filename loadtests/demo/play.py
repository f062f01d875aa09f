"""Plays the rows of the demo in order, each in its situation, and judges every answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp

from loadtests.demo.ask import ask
from loadtests.demo.expectations import ROWS, Observed, Row, Situation, judge
from loadtests.demo.fleet import Fleet
from loadtests.demo.stack import Found, Stage

_LIMIT = aiohttp.ClientTimeout(total=None, connect=5, sock_read=60)


@dataclass(frozen=True, slots=True)
class Played:
    """One row after the play: observed and judged, or skipped for a reason."""

    row: Row
    observed: Observed | None = None
    wrong: str | None = None
    skipped: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The row as plain data."""
        observed = None if self.observed is None else asdict(self.observed)
        return {
            "prompt": self.row.kind,
            "situation": str(self.row.situation),
            "as_policy_says": None if self.skipped else self.wrong is None,
            "difference": self.wrong,
            "skipped": self.skipped,
            **(observed or {}),
        }


async def play(found: Found, played: list[Played], tell: Callable[[str], None]) -> None:
    """Append all rows to `played`, each as soon as it is judged; `tell` hears what is being waited for.

    Raises:
        IsthmusError: the stack did not come into a situation, or not out of it again; what was played stays.
    """
    async with aiohttp.ClientSession(timeout=_LIMIT, headers=found.headers()) as http:
        fleet = Fleet(http, found.base_url)
        stage = Stage(found, fleet)
        async with stage.ready():
            has_cloud = bool(await fleet.backends("cloud"))
            for situation, rows in itertools.groupby(ROWS, key=lambda row: row.situation):
                scene = [
                    (row, why_skipped(row, has_cloud=has_cloud, has_control=found.control is not None)) for row in rows
                ]
                playable = any(reason is None for _, reason in scene)
                if playable and situation is not Situation.NORMAL:
                    tell(f"{situation} …")
                async with stage.set(situation if playable else Situation.NORMAL):
                    for row, reason in scene:
                        played.append(await _play_row(row, reason, found, http, has_cloud=has_cloud))


async def _play_row(
    row: Row, reason: str | None, found: Found, http: aiohttp.ClientSession, *, has_cloud: bool
) -> Played:
    if reason is not None:
        return Played(row, skipped=reason)
    observed = await ask(http, found.base_url, found.model, row)
    return Played(row, observed, wrong=judge(row, observed, has_cloud=has_cloud))


def why_skipped(row: Row, *, has_cloud: bool, has_control: bool) -> str | None:
    """Why this row cannot be played on this stack, or None."""
    if row.situation is not Situation.NORMAL and not has_control:
        return "needs the control socket of isthmus up"
    if not has_cloud and not row.without_cloud:
        return "needs the cloud tier"
    return None
