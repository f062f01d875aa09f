"""Measures what one decision costs: `python -m loadtests.bench.decide`.

The floor of a fleet that is judged one by one is writing down as many candidates; that of columns, copying them once.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from router.fleet.directory import BULK_FROM
from router.policy.bulk import Bulk
from router.policy.columns import Columns, columns_of
from router.policy.decision import decide
from router.policy.model import Candidate, DecisionFacts, Mode, Policy, Slo
from router.policy.rules import build_policy
from shared.fleet import BackendSnapshot, BackendState, FleetSnapshot, ServedModel, ThermalLevel, Zone
from shared.openai.facts import Endpoint, RequestFacts
from shared.privacy import Action, PrivacyClass

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
    return [getattr(columns, name).copy() for name in ("zone", "received_ms", "load", "tpot_ms", "observed_ms")]


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


def main() -> None:
    """Print microseconds a decision and its ratio to the floor, by fleet size and class, and what columns cost."""
    by, request = policy(), RequestFacts(Endpoint.CHAT, "small", True, 200, 128, frozenset())
    gc.freeze()
    print(f"{'backends':>8} {'form':>8} {'class':>9} {'us/decision':>12} {'us floor':>9} {'ratio':>7} {'target':>7}")
    for size in _SIZES:
        fleet = fleet_of(size)
        columns = columns_of(fleet.backends)
        for privacy_class in (PrivacyClass.PUBLIC, PrivacyClass.PERSONAL):
            facts = DecisionFacts(request, privacy_class, frozenset())
            one = partial(decide, facts, fleet, by, NOW_MS)
            calls = max(3, _CALLS // size)
            _row(size, "list", privacy_class, *_compared(one, partial(_write_down, size), calls))
            if size >= BULK_FROM:
                all_at_once = partial(one, Bulk(columns))
                _row(size, "columns", privacy_class, *_compared(all_at_once, partial(_copy, columns), 50))
    fleet = fleet_of(_SIZES[-1])
    columns = columns_of(fleet.backends)
    changed = (replace(fleet.backends[0], in_flight=1), *fleet.backends[1:])
    made, patched = _compared(partial(columns_of, fleet.backends), partial(columns.updated, changed), 1)
    print(f"\ncolumns of {_SIZES[-1]} backends: made in {made / 1000:.1f} ms, after one changed in {patched:.0f} us")


if __name__ == "__main__":
    main()
