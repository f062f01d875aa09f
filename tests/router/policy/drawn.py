"""Draws policies, requests and fleets from a seed: thousands in the time in which strategies make dozens, and large."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from router.policy.model import Act, Cost, DecisionFacts, Match, Mode, Policy, Route, Rule, Slo
from shared.fleet import BackendSnapshot, BackendState, Breaker, FleetSnapshot, Incumbent, ThermalLevel, Zone
from shared.privacy import Action, PrivacyClass
from tests.router.policy.builders import MODEL, NOW_MS, facts, served

T = TypeVar("T")


def _maybe(draw: Random, value: T, share: float = 0.7) -> T | None:
    return value if draw.random() < share else None


def drawn_backend(draw: Random, backend_id: str) -> BackendSnapshot:
    """Mostly one that can serve, with whatever speaks against it here and there; few different figures, for ties."""
    ready = draw.random() < 0.8
    entry = served(
        _maybe(draw, draw.choice([64, 600, 4_096, 9_000])),
        model=draw.choice([MODEL, MODEL, MODEL, "other"]),
        features=draw.choice([(), (), ("tools",), ("structured_output",)]),
    )
    by_prompt = tuple(_maybe(draw, draw.choice([90.0, 700.0])) for _ in range(4))
    return BackendSnapshot(
        backend_id=backend_id,
        zone=draw.choice(list(Zone)),
        url=f"http://{backend_id}:1",
        state=BackendState.READY if ready else draw.choice(list(BackendState)),
        models=(entry,) if draw.random() < 0.95 else (),
        received_ms=_maybe(draw, NOW_MS - draw.choice([0, 90, 900, 2_900, 3_100])),
        level=draw.choice(list(ThermalLevel)) if draw.random() < 0.5 else ThermalLevel.NOMINAL,
        derate_ratio=draw.choice([1.0, 1.0, 0.55, draw.uniform(0.05, 1)]),
        slots_total=_maybe(draw, draw.randint(0, 4)),
        slots_busy=_maybe(draw, draw.randint(0, 4)),
        queued=_maybe(draw, draw.choice([0, 0, 3])),
        queue_limit=_maybe(draw, draw.randint(0, 8)),
        prefill_tokens_per_s=_maybe(draw, draw.choice([40.0, 400.0, draw.uniform(0.5, 2_000)])),
        decode_tokens_per_s=_maybe(draw, draw.choice([9.0, 90.0, draw.uniform(0.5, 200)])),
        ttft_ms=_maybe(draw, draw.choice([120.0, 1_900.0])),
        ttft_ms_by_prompt=draw.choice([(), by_prompt]),
        answer_tokens=_maybe(draw, draw.choice([9.0, 200.0]), 0.5),
        slot_wait_s=_maybe(draw, draw.choice([0.0, 2.0, 900.0]), 0.5),
        turn_s=_maybe(draw, draw.choice([0.2, 3.0, draw.uniform(0.01, 90)]), 0.5),
        output_cap_tokens=_maybe(draw, draw.randint(1, 500), 0.3),
        breaker=draw.choice(list(Breaker)) if draw.random() < 0.15 else Breaker.CLOSED,
        cooling_until_ms=_maybe(draw, NOW_MS + draw.choice([-5, 0, 1, 4_000]), 0.1),
        in_flight=draw.choice([0, 0, 1, 3]),
    )


def drawn_fleet(draw: Random, size: int) -> FleetSnapshot:
    """A fleet in any order."""
    backends = [drawn_backend(draw, f"b{n}") for n in range(size)]
    draw.shuffle(backends)
    incumbent = Incumbent(draw.choice(["edge", "cloud"]), NOW_MS - draw.choice([0, 4_999, 5_000, 9_000]))
    return FleetSnapshot(tuple(backends), NOW_MS, _maybe(draw, incumbent))


def drawn_policy(draw: Random) -> Policy:
    """A policy with at most one rule, which acts on every request."""
    mode = draw.choice(list(Mode))
    act = Act(
        action=_maybe(draw, draw.choice(list(Action)), 0.2),
        zones=_maybe(draw, frozenset(draw.sample(list(Zone), draw.randint(1, 3))), 0.3),
        mode=_maybe(draw, draw.choice(list(Mode)), 0.3),
        output_cap_tokens=_maybe(draw, draw.randint(1, 600), 0.5),
    )
    price: list[Any] = [draw.choice([None, 0.0, draw.uniform(0, 5)]) for _ in range(2)]
    return Policy(
        mode=mode,
        actions=tuple((each, draw.choice([Action.ANY, *Action])) for each in PrivacyClass),
        slo=Slo(draw.choice([200.0, 2_000.0]), draw.choice([20.0, 150.0])),
        stale_after_ms=3_000,
        default_output_tokens=draw.choice([1, 256]),
        hysteresis_ratio=draw.choice([0.0, 0.2, 0.7]),
        digest="sha256:0",
        cost=Cost(*price, draw.choice([0.0, 400.0]), draw.choice([0.0, 9.0])),
        rules=(Rule("r", Match(), act),) if draw.random() < 0.4 else (),
        stream_wait_ms=_maybe(draw, draw.choice([300.0, 3_000.0, 30_000.0])),
        shared_line_ratio=draw.choice([0.0, 0.5, 1.0]),
    )


def drawn_request(draw: Random) -> DecisionFacts:
    """A request for the model that most backends serve."""
    return facts(
        draw.choice([PrivacyClass.PUBLIC, *PrivacyClass]),
        draw.choice([Route.AUTO, *Route]),
        prompt_tokens=draw.choice([1, 90, 256, 257, 3_000, 12_000]),
        max_tokens=_maybe(draw, draw.choice([1, 50, 5_000])),
        model=draw.choice([MODEL, MODEL, MODEL, MODEL, "other", "nobody's"]),
        features=draw.choice([frozenset(), frozenset(), frozenset({"tools"})]),
    )
