"""Changes of the policy file while a router runs: all of it or nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from router.policy.model import Mode, Policy
from router.rulebook.defaults import PolicyDefaults
from router.rulebook.follow import PolicyFollower
from router.rulebook.load import Vocabulary
from shared.errors import SettingsError
from shared.testing.clock import ManualClock

KNOWN = Vocabulary(frozenset({"card"}))
FAST, CLOUD = "defaults: {mode: fastest}\n", "defaults: {mode: prefer_cloud}\n"


class Watched:
    def __init__(self, path: Path, text: str) -> None:
        path.write_text(text)
        self.path = path
        self.clock = ManualClock()
        self.heard: list[str] = []
        self.looked_for: list[list[str]] = []
        self.follower = PolicyFollower(
            path,
            PolicyDefaults(),
            KNOWN,
            self.clock,
            on_reload=self._hear,
            look_for=lambda own: self.looked_for.append([each.kind for each in own]),
        )

    def _hear(self, outcome: str, policy: Policy) -> None:
        self.heard.append(outcome)

    @property
    def mode(self) -> Mode:
        return self.follower.policy.mode


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "policy.yaml", FAST)


async def test_a_valid_change_comes_into_force(watched: Watched) -> None:
    await watched.follower.look()
    assert watched.heard == []
    watched.path.write_text(CLOUD)
    await watched.follower.look()
    assert (watched.mode, watched.heard) == (Mode.PREFER_CLOUD, ["applied"])


async def test_a_file_that_is_emptied_or_replaced_by_a_pipe_changes_nothing(watched: Watched) -> None:
    for change in (lambda: watched.path.write_bytes(b""), lambda: (watched.path.unlink(), os.mkfifo(watched.path))):
        change()
        async with asyncio.timeout(5):
            await watched.follower.look()
    assert (watched.mode, watched.heard) == (Mode.FASTEST, ["refused", "refused"])
    watched.path.unlink()
    watched.path.write_text(CLOUD)
    await watched.follower.look()
    assert watched.mode is Mode.PREFER_CLOUD


async def test_what_a_file_looks_for_comes_and_goes_with_it(watched: Watched) -> None:
    """Named before the policy is in force; a refused file leaves what was looked for."""
    for text in ("patterns: [{kind: a, pattern: x}]\n", "patterns: [{kind: b, pattern: '('}]\n", FAST):
        watched.path.write_text(text)
        await watched.follower.look()
    assert watched.looked_for == [[], ["a"], []]
    assert watched.heard == ["applied", "refused", "applied"]


@pytest.mark.parametrize(
    "bad", ["defaults: {mode: fastest, mod: 1}\n", "rules: [", "rules: [{name: a, act: {action: any}}]\n", "\xff"]
)
async def test_an_invalid_change_changes_nothing_and_is_told_once(watched: Watched, bad: str) -> None:
    watched.path.write_bytes((CLOUD + bad).encode("latin-1"))
    before = watched.follower.policy
    for _ in range(3):
        await watched.follower.look()
    assert watched.follower.policy is before
    assert watched.heard == ["refused"]
    watched.path.write_text(CLOUD)
    await watched.follower.look()
    assert (watched.mode, watched.heard) == (Mode.PREFER_CLOUD, ["refused", "applied"])


async def test_a_file_that_is_gone_keeps_the_policy_and_may_come_back_as_it_was(watched: Watched) -> None:
    watched.path.unlink()
    await watched.follower.look()
    await watched.follower.look()
    assert (watched.mode, watched.heard) == (Mode.FASTEST, ["refused"])
    watched.path.write_text(FAST)
    await watched.follower.look()
    assert watched.heard == ["refused", "applied"]


async def test_a_change_of_equal_size_and_time_is_seen(watched: Watched) -> None:
    times = watched.path.stat()
    watched.path.write_text(FAST.replace("fastest", "FASTEST".lower()[::-1]))
    os.utime(watched.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    await watched.follower.look()
    assert watched.heard == ["refused"]


async def test_it_looks_by_its_clock_and_at_once_when_asked(watched: Watched) -> None:
    loop = asyncio.create_task(watched.follower.run(5.0))
    try:
        watched.path.write_text(CLOUD)
        await _until(lambda: watched.heard == ["applied"])
        watched.path.write_text(FAST)
        await asyncio.sleep(0.05)
        assert watched.heard == ["applied"]
        await watched.clock.advance(5.0)
        await _until(lambda: watched.heard == ["applied", "applied"])
        watched.path.write_text(CLOUD)
        watched.follower.reload_soon()
        await _until(lambda: len(watched.heard) == 3)
        watched.follower.reload_soon()
        await _until(lambda: watched.heard[3:] == ["unchanged"])
    finally:
        loop.cancel()


def test_there_is_no_start_with_an_invalid_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Did you mean mode"):
        Watched(tmp_path / "policy.yaml", "defaults: {mod: fastest}\n")


def test_the_minute_of_the_week_is_that_of_the_files_time_zone(tmp_path: Path) -> None:
    """1,700,000,000 s is Tuesday, 22:13 UTC: Wednesday, 07:13 in Tokyo."""
    watched = Watched(tmp_path / "policy.yaml", "time_zone: Asia/Tokyo\n")
    assert watched.follower.week_minute() == (2 * 24 + 7) * 60 + 13


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)
