"""How much of this machine's processors other programs use: what is measured beside them says little of the device."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import psutil

from shared.clock import Clock

HEAVY_SHARE = 0.25
"""From this share of all processor time on, other programs would bend a measurement."""
_STEP_MS = 2_000
"""Looking at one's own processes walks over all of the machine's, so it is not done more often."""
_LOOKS = 3


class Used(NamedTuple):
    """Processor seconds since some beginning: of all cores together, of those spent on work, and of those spent by this
    process and its children."""

    all_s: float
    busy_s: float
    own_s: float


def used_now() -> Used:
    """Of this machine. Work of its host on its cores (steal) is work of others."""
    times = psutil.cpu_times()
    busy_s = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
    return Used(busy_s + times.idle + getattr(times, "iowait", 0.0), busy_s, _own_s())


def _own_s() -> float:
    """This process, children that have ended, and those that run."""
    own = os.times()
    found = own.user + own.system + own.children_user + own.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:  # it has just ended
            continue
        found += times.user + times.system
    return float(found)


class Company:
    """Asked often, it looks at intervals, and speaks of the last few seconds."""

    def __init__(self, clock: Clock, read: Callable[[], Used] = used_now) -> None:
        self._clock = clock
        self._read = read
        self._looks: deque[tuple[int, Used]] = deque(maxlen=_LOOKS)

    @property
    def is_heavy(self) -> bool:
        """Whether others use so much that nothing should be measured now; no, while that is not known."""
        now_ms = self._clock.now_ms()
        if not self._looks or now_ms - self._looks[-1][0] >= _STEP_MS:
            self._looks.append((now_ms, self._read()))
        first, last = self._looks[0][1], self._looks[-1][1]
        all_s = last.all_s - first.all_s
        others_s = (last.busy_s - first.busy_s) - (last.own_s - first.own_s)
        return all_s > 0 and others_s >= HEAVY_SHARE * all_s
