"""Measures what one decision costs, against writing down its candidates: `python -m loadtests.bench.decide`."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from router.policy.decision import decide
from router.policy.model import Candidate, DecisionFacts, Mode, Slo
from router.policy.rules import build_policy
from shared.fleet import BackendSnapshot, BackendState, FleetSnapshot, ServedModel, ThermalLevel, Zone
from shared.openai.facts import Endpoint, RequestFacts
from shared.privacy import Action, PrivacyClass

NOW_MS = 1_000_000
_DEVICE = Zone.DEVICE
_ROUNDS = 15
_CALLS = 1_000


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


def _microseconds(call: Callable[[], object], calls: int) -> float:
    began = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - began) / calls / 1_000


def main() -> None:
    """Print microseconds a decision and its ratio to the floor, for three fleet sizes and two classes."""
    policy = build_policy(
        mode=Mode.PREFER_EDGE,
        actions={PrivacyClass.PUBLIC: Action.ANY},
        slo=Slo(),
        stale_after_ms=3_000,
        default_output_tokens=256,
        hysteresis_ratio=0.2,
        dwell_ms=5_000,
    )
    request = RequestFacts(Endpoint.CHAT, "small", True, 200, 128, frozenset())
    gc.freeze()
    print(f"{'backends':>8} {'class':>9} {'us/decision':>12} {'us floor':>9} {'ratio':>6}")
    for size in (1, 8, 64):
        fleet = fleet_of(size)
        for privacy_class in (PrivacyClass.PUBLIC, PrivacyClass.PERSONAL):
            facts = DecisionFacts(request, privacy_class, frozenset())
            calls = max(50, _CALLS // size)
            # Floor and decision alternate, so that a busy machine slows both.
            pairs = [
                (
                    _microseconds(partial(decide, facts, fleet, policy, NOW_MS), calls),
                    _microseconds(partial(_write_down, size), calls),
                )
                for _ in range(_ROUNDS)
            ]
            cost, floor = median(p[0] for p in pairs), median(p[1] for p in pairs)
            print(f"{size:>8} {privacy_class:>9} {cost:>12.1f} {floor:>9.1f} {cost / floor:>6.2f}")


if __name__ == "__main__":
    main()
