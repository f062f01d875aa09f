"""Whether other programs leave this machine free enough to measure it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edge.devices.company import Company, Used, used_now
from shared.testing.clock import ManualClock


@pytest.mark.parametrize(
    ("others", "own", "heavy"),
    [(0.0, 0.0, False), (0.2, 0.0, False), (0.3, 0.0, True), (0.2, 0.8, False), (0.3, 0.7, True)],
)
async def test_what_others_use_counts_and_what_it_uses_itself_does_not(others: float, own: float, heavy: bool) -> None:
    clock, used = ManualClock(), Used(100.0, 50.0, 10.0)
    company = Company(clock, lambda: used)
    assert not company.is_heavy, "nothing is known yet"
    for _ in range(3):
        await clock.advance(2)
        used = Used(used.all_s + 8, used.busy_s + 8 * (others + own), used.own_s + 8 * own)
        assert company.is_heavy is heavy


async def test_it_looks_at_intervals_and_forgets() -> None:
    clock, looks = ManualClock(), 0
    used = Used(0.0, 0.0, 0.0)

    def read() -> Used:
        nonlocal looks
        looks += 1
        return used

    company = Company(clock, read)
    for step in range(40):  # ten seconds, the first four of them full
        busy_s = 2.0 if step < 16 else 0.0
        used = Used(used.all_s + 2, used.busy_s + busy_s, 0.0)
        heavy = company.is_heavy
        await clock.advance(0.25)
    assert (looks, heavy) == (5, False)


def test_the_time_of_children_is_ones_own_also_once_they_have_ended() -> None:
    before = used_now()
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ninput()"
    child = subprocess.Popen([sys.executable, "-c", "print()\n" + burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdin is not None
    child.stdin.write(b"\n")
    child.stdin.close()
    child.wait(60)
    child.stdout.close()
    after = used_now()
    assert after.own_s - before.own_s >= 0.3
    assert after.all_s > before.all_s and after.busy_s > before.busy_s
