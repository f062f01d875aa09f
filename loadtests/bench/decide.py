"""Measures what one decision costs: `python -m loadtests.bench.decide`.

The floor of a fleet that is judged one by one is writing down as many candidates; that of columns, copying them once.
List and columns are made when the fleet changes; the second table says what that costs a request.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from functools import partial
from typing import cast

import aiohttp

from router.dispatch.health import Health
from router.dispatch.ledger import Ledger, Ledgers
from router.dispatch.targets import Access, Targets
from router.fleet.directory import FleetDirectory
from router.fleet.poller import CapacityPoller
from router.fleet.roster import BULK_FROM
from router.fleet.watch import FleetWatch
from router.policy.bulk import Bulk
from router.policy.columns import Columns, columns_of
from router.policy.decision import decide
from router.policy.listed import Listed
from router.policy.model import Candidate, DecisionFacts, Mode, Policy, Slo
from router.policy.rules import build_policy
from shared.breaker import BreakerRules
from shared.clock import SystemClock
from shared.fleet import BackendSnapshot, BackendState, FleetSnapshot, Heartbeat, ServedModel, ThermalLevel, Zone
from shared.openai.facts import Endpoint, RequestFacts
from shared.privacy import Action, PrivacyClass
from shared.state.memory import MemoryStateStore

NOW_MS = 1_000_000
_DEVICE = Zone.DEVICE
_ROUNDS = 15
_CALLS = 1_000
_SIZES = (1, 8, 64, 1_000, 10_000)
_TARGETS_US = {8: 20, 10_000: 300}
_JUDGED = {(8, "list"), (10_000, "columns")}


def fleet_of(size: int) -> FleetSnapshot:
    """A fleet of `size` backends: a quarter cloud, the rest devices and sites under various loads and heat."""
    zones = (Zone.DEVICE, Zone.SITE, Zone.DEVICE, Zone.CLOUD)
    levels = (ThermalLevel.NOMINAL, ThermalLevel.WARM, ThermalLevel.HOT, ThermalLevel.UNKNOWN)
    backends = tuple(
        BackendSnapshot(
            backend_id=f"backend-{index}",
            zone=zones[index % 4],
            url=f"http://10.0.0.{index % 250}:8081",
            state=BackendState.READY,
            models=(ServedModel(model_id="small", context_tokens=4096),),
            received_ms=NOW_MS - 100,
            level=levels[index % 4],
            slots_total=2,
            slots_busy=index % 3,
            queued=0,
            queue_limit=8,
            prefill_tokens_per_s=300.0 + index if index % 4 != 3 else None,
            decode_tokens_per_s=40.0 + index,
            ttft_ms=180.0 if index % 4 == 3 else None,
        )
        for index in range(size)
    )
    return FleetSnapshot(backends=backends, taken_ms=NOW_MS)


def _write_down(size: int) -> list[Candidate]:
    return [Candidate("b", _DEVICE, "u", 1.0, 1.0) for _ in range(size)]


def _copy(columns: Columns) -> list[object]:
    """What no pass over arrays can undercut: touching each figure once."""
    read = ("zone", "received_ms", "load", "tpot_ms", "idle_first_ms")
    return [getattr(columns.figures, name).copy() for name in read]


def _microseconds(call: Callable[[], object], calls: int) -> float:
    began = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - began) / calls / 1_000


def policy() -> Policy:
    """The policy that is measured: the defaults."""
    return build_policy(
        mode=Mode.PREFER_EDGE,
        actions={PrivacyClass.PUBLIC: Action.ANY},
        slo=Slo(),
        stale_after_ms=3_000,
        default_output_tokens=256,
        hysteresis_ratio=0.2,
        dwell_ms=5_000,
    )


def _compared(call: Callable[[], object], floor: Callable[[], object], calls: int) -> tuple[float, float]:
    """Microseconds of both; they alternate, so that a busy machine slows both, and the least of the rounds counts."""
    pairs = [(_microseconds(call, calls), _microseconds(floor, calls)) for _ in range(_ROUNDS)]
    return min(p[0] for p in pairs), min(p[1] for p in pairs)


def _row(size: int, form: str, name: str, cost: float, floor: float) -> None:
    target = f"{_TARGETS_US[size]:>7}" if (size, form) in _JUDGED else ""
    print(f"{size:>8} {form:>8} {name:>9} {cost:>12.1f} {floor:>9.1f} {cost / floor:>7.2f} {target}")


def _print_decisions() -> None:
    by, request = policy(), RequestFacts(Endpoint.CHAT, "small", True, 200, 128, frozenset())
    print(f"{'backends':>8} {'form':>8} {'class':>9} {'us/decision':>12} {'us floor':>9} {'ratio':>7} {'target':>7}")
    for size in _SIZES:
        fleet = fleet_of(size)
        columns = columns_of(fleet.backends)
        for privacy_class in (PrivacyClass.PUBLIC, PrivacyClass.PERSONAL):
            facts = DecisionFacts(request, privacy_class, frozenset())
            one = partial(decide, facts, fleet, by, NOW_MS)
            calls = max(3, _CALLS // size)
            listed = partial(one, Listed(fleet.backends))
            _row(size, "list", privacy_class, *_compared(listed, partial(_write_down, size), calls))
            if size >= BULK_FROM:
                _row(
                    size, "columns", privacy_class, *_compared(partial(one, Bulk(columns)), partial(_copy, columns), 50)
                )


def _directory(size: int) -> tuple[FleetDirectory, Ledgers]:
    """A router's directory of `size` agents that reported to it."""
    clock = SystemClock()
    watch = FleetWatch(MemoryStateStore(clock, ttl_s=60), clock, last_known_ms=15_000)
    ledgers = Ledgers(BreakerRules())
    # A router without clouds asks nobody, so its poller needs no session.
    poller = CapacityPoller(cast(aiohttp.ClientSession, None), (), clock, limit_s=1)
    directory = FleetDirectory(watch, poller, Health(ledgers, Targets({}, edge=Access())), clock)

    async def report() -> None:
        for backend in fleet_of(size).backends:
            beat = Heartbeat(
                backend_id=backend.backend_id, instance="instance-a", sequence=1,
                url=f"http://{backend.backend_id}", state=backend.state, models=backend.models,
            )  # fmt: skip
            await watch.publish(beat)

    asyncio.run(report())
    return directory, ledgers


def _look(directory: FleetDirectory) -> object:
    return directory.view(directory.snapshot())


def _look_after_change(directory: FleetDirectory, ledger: Ledger) -> object:
    ledger.enter(0)
    return _look(directory)


def _print_fleet() -> None:
    """What a request pays for the fleet it is decided over, before it is decided."""
    print(f"\n{'backends':>8} {'fleet as it stood':>18} {'one in flight more':>19} {'made anew':>12}  (us)")
    for size in (8, 10_000):
        directory, ledgers = _directory(size)
        look, backends = partial(_look, directory), directory.snapshot().backends
        anew = partial(Listed if size < BULK_FROM else columns_of, backends)
        made = _compared(anew, look, 1)[0]
        changed, stood = _compared(partial(_look_after_change, directory, ledgers.of("backend-0")), look, 50)
        print(f"{size:>8} {stood:>18.1f} {changed:>19.1f} {made:>12.1f}")


def main() -> None:
    """Print microseconds a decision and its ratio to the floor, by fleet size and class, and what a fleet costs."""
    gc.freeze()
    _print_decisions()
    _print_fleet()


if __name__ == "__main__":
    main()
