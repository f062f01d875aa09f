"""Plays load traces against the scaling policy: how long requests wait, what the replicas cost, how often it changes.

    python -m loadtests.bench.autoscale [--start-s 40] [--seed 1]

One second of the clock is one step. A replica serves `--service-s` long requests, as many at once as its target; one
that is added takes `--start-s` until it serves. Beside the policy of the product stand a fixed number of replicas that
could carry the trace's mean, one that could carry its peak, and the same policy without margin and delays. Everything
is simulated: the figures compare policies, and say nothing about an engine.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from cloud.options import goals
from cloud.scaling.policy import Goals, Pressure, Wish, decide
from cloud.settings import AutoscalingSettings

Decide = Callable[[Pressure, Goals, Wish, float], tuple[int, Wish]]
_TELL_S = 10
"""Load is told to the controller this often, and averaged over three of these."""
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Machine:
    """What a replica does."""

    start_s: int
    service_s: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one trace."""

    wait_p50_s: float
    wait_p99_s: float
    refused_ratio: float
    replica_hours: float
    changes: int
    served: int


def traces(seed: int) -> dict[str, list[float]]:
    """Requests per second, second by second."""
    chance = random.Random(seed)
    day = [0.6 + 0.5 * math.sin(2 * math.pi * t / (2 * _HOUR_S)) for t in range(2 * _HOUR_S)]
    return {
        "steady": [0.8] * _HOUR_S,
        "day": day,
        "bursts": [4.0 if (t // 60) % 10 == 0 else 0.2 for t in range(_HOUR_S)],
        "edge of a boundary": [1.0 + 0.12 * math.sin(2 * math.pi * t / 120) for t in range(_HOUR_S)],
        "idle with visits": [3.0 if chance.random() < 0.002 else 0.0 for _ in range(2 * _HOUR_S)],
    }


def play(rates: list[float], machine: Machine, wanted: Goals, policy: Decide, seed: int) -> Outcome:
    """Arrivals are Poisson; where 16 wait for each replica that could run, the queue is full and more are refused."""
    arrivals = np.random.default_rng(seed).poisson(rates)
    ready, coming = max(wanted.min_replicas, 0), deque[int]()
    waiting: deque[int] = deque()
    running: list[int] = []  # seconds at which each ends
    waits: list[int] = []
    told: deque[int] = deque(maxlen=3 * _TELL_S)
    wish, refused, hours, changes = Wish(), 0, 0.0, 0
    for now, arrived in enumerate(arrivals):
        while coming and coming[0] <= now:
            coming.popleft()
            ready += 1
        running = [end for end in running if end > now]
        room_in_queue = 16 * wanted.max_replicas - len(waiting)
        waiting.extend([now] * min(int(arrived), room_in_queue))
        refused += max(0, int(arrived) - room_in_queue)
        while waiting and len(running) < ready * wanted.target_requests:
            waits.append(now - waiting.popleft())
            running.append(now + machine.service_s)
        told.append(len(running) + len(waiting))
        hours += (ready + len(coming)) / _HOUR_S
        if now % _TELL_S == 0:
            have = ready + len(coming)
            replicas, wish = policy(Pressure(have, sum(told) / len(told)), wanted, wish, float(now))
            changes += replicas != have
            coming.extend([now + machine.start_s] * (replicas - have))
            for _ in range(have - replicas):
                if coming:
                    coming.pop()
                else:
                    ready -= 1
    spread = np.percentile(waits or [0], [50, 99])
    return Outcome(float(spread[0]), float(spread[1]), refused / max(1, arrivals.sum()), hours, changes, len(waits))


def hold(pressure: Pressure, _: Goals, wish: Wish, __: float) -> tuple[int, Wish]:
    """The policy that never changes anything."""
    return pressure.replicas, wish


def contestants(rates: list[float], machine: Machine, wanted: Goals) -> Iterator[tuple[str, Goals, Decide]]:
    """Names, goals and policies that are compared."""

    def carry(rate: float) -> int:
        return max(1, math.ceil(rate * machine.service_s / wanted.target_requests))

    yield "policy", wanted, decide
    eager = replace(wanted, up_delay_s=0, down_delay_s=0, to_zero_delay_s=0, slack_ratio=1.0)
    yield "no margin, no delay", eager, decide
    for name, rate in (("fixed at the mean", sum(rates) / len(rates)), ("fixed at the peak", max(rates))):
        yield name, replace(wanted, min_replicas=carry(rate), max_replicas=carry(rate)), hold


def main() -> None:
    """Play all traces and print one line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start-s", type=int, default=40, help="until a replica that is added serves")
    parser.add_argument("--service-s", type=int, default=8, help="time of one request")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    machine = Machine(given.start_s, given.service_s)
    scaling = AutoscalingSettings(min_replicas=0, max_replicas=8, target_ongoing_requests=8)
    for name, rates in traces(given.seed).items():
        print(f"{name}:")
        baseline = None
        for title, wanted, policy in contestants(rates, machine, goals(scaling)):
            found = play(rates, machine, wanted, policy, given.seed)
            baseline = baseline or found.replica_hours
            print(
                f"  {title:<20} wait p50 {found.wait_p50_s:5.0f} s  p99 {found.wait_p99_s:5.0f} s  refused "
                f"{found.refused_ratio:6.1%}  replica-hours {found.replica_hours:5.2f} "
                f"({found.replica_hours / baseline:4.2f} x)  changes {found.changes}"
            )


if __name__ == "__main__":
    main()
