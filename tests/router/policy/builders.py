"""Builds policies, requests, backends and fleets for the tests of decisions, one by one and as strategies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from router.policy.model import Act, Cost, DecisionFacts, Match, Mode, Policy, Route, Rule, Slo
from router.policy.rules import build_policy
from shared.fleet import (
    BackendSnapshot,
    BackendState,
    Breaker,
    FleetSnapshot,
    Incumbent,
    ServedModel,
    ThermalLevel,
    Zone,
)
from shared.openai.facts import Endpoint, RequestFacts
from shared.privacy import Action, PrivacyClass

NOW_MS = 1_000_000
MODEL = "small"
EDGE_ZONES = frozenset({Zone.DEVICE, Zone.SITE})
ACTIONS: Mapping[PrivacyClass, Action] = {
    PrivacyClass.PUBLIC: Action.ANY,
    PrivacyClass.PERSONAL: Action.EDGE_ONLY,
    PrivacyClass.SECRET: Action.EDGE_ONLY,
    PrivacyClass.UNKNOWN: Action.EDGE_ONLY,
}


def policy(
    mode: Mode = Mode.PREFER_EDGE, *, actions: Mapping[PrivacyClass, Action] = ACTIONS, **changes: Any
) -> Policy:
    values: dict[str, Any] = {
        "slo": Slo(ttft_ms=2_000, tpot_ms=150),
        "stale_after_ms": 3_000,
        "default_output_tokens": 100,
        "hysteresis_ratio": 0.2,
        "dwell_ms": 5_000,
    }
    return build_policy(mode=mode, actions=actions, **{**values, **changes})


def facts(
    privacy_class: PrivacyClass = PrivacyClass.PUBLIC,
    route: Route = Route.AUTO,
    *,
    prompt_tokens: int = 100,
    max_tokens: int | None = 50,
    model: str = MODEL,
    features: frozenset[str] = frozenset(),
    endpoint: Endpoint = Endpoint.CHAT,
) -> DecisionFacts:
    request = RequestFacts(endpoint, model, True, prompt_tokens, max_tokens, features)
    return DecisionFacts(request, privacy_class, frozenset(), route)


def served(context_tokens: int | None = 4_096, *, model: str = MODEL, features: tuple[str, ...] = ()) -> ServedModel:
    return ServedModel(model_id=model, context_tokens=context_tokens, features=features)


def backend(backend_id: str, zone: Zone = Zone.DEVICE, **changes: Any) -> BackendSnapshot:
    """A ready, idle backend: a device that decodes at 100 tokens/s, or a cloud seen to answer in 300 ms."""
    values: dict[str, Any] = {
        "url": f"http://{backend_id}:1",
        "state": BackendState.READY,
        "models": (served(),),
        "received_ms": NOW_MS - 500,
        "level": ThermalLevel.NOMINAL,
        "slots_total": 2,
        "slots_busy": 0,
        "queued": 0,
        "queue_limit": 4,
        "decode_tokens_per_s": 100.0,
    }
    values |= {"ttft_ms": 300.0} if zone is Zone.CLOUD else {"prefill_tokens_per_s": 400.0}
    return BackendSnapshot(backend_id=backend_id, zone=zone, **{**values, **changes})


def fleet(*backends: BackendSnapshot, incumbent: Incumbent | None = None) -> FleetSnapshot:
    return FleetSnapshot(backends=backends, taken_ms=NOW_MS, incumbent=incumbent)


_counts = st.none() | st.integers(0, 9)
_rates = st.none() | st.floats(0.5, 2_000)
_models = st.lists(
    st.builds(
        served,
        st.none() | st.integers(1, 9_000),
        model=st.sampled_from([MODEL, "other"]),
        features=st.sampled_from([(), ("tools",), ("structured_output",), ("lora", "tools")]),
    ),
    max_size=2,
).map(tuple)


@st.composite
def backends(draw: st.DrawFn, backend_id: str = "b") -> BackendSnapshot:
    """Any backend that a fleet can hold."""
    return BackendSnapshot(
        backend_id=backend_id,
        zone=draw(st.sampled_from(Zone)),
        url=f"http://{backend_id}:1",
        state=draw(st.sampled_from([BackendState.READY, *BackendState])),
        models=draw(_models | st.just((served(),))),
        received_ms=draw(st.none() | st.integers(NOW_MS - 6_000, NOW_MS)),
        level=draw(st.sampled_from(ThermalLevel)),
        derate_ratio=draw(st.floats(0.05, 1)),
        slots_total=draw(_counts),
        slots_busy=draw(_counts),
        queued=draw(_counts),
        queue_limit=draw(_counts),
        prefill_tokens_per_s=draw(_rates),
        decode_tokens_per_s=draw(_rates),
        ttft_ms=draw(st.none() | st.floats(1, 9_000)),
        answer_tokens=draw(st.none() | st.floats(1, 900)),
        slot_wait_s=draw(st.none() | st.floats(0, 900)),
        turn_s=draw(st.none() | st.floats(0, 90)),
        ttft_ms_by_prompt=draw(st.just(()) | st.tuples(*[st.none() | st.floats(1, 9_000)] * 4)),
        output_cap_tokens=draw(st.none() | st.integers(1, 500)),
        breaker=draw(st.sampled_from([Breaker.CLOSED, *Breaker])),
        cooling_until_ms=draw(st.none() | st.integers(NOW_MS - 2_000, NOW_MS + 9_000)),
        in_flight=draw(st.integers(0, 6)),
    )


@st.composite
def fleets(draw: st.DrawFn) -> FleetSnapshot:
    """Any fleet of up to six backends."""
    size = draw(st.integers(0, 6))
    incumbent = st.none() | st.builds(
        Incumbent, tier=st.sampled_from(["edge", "cloud"]), since_ms=st.integers(NOW_MS - 9_000, NOW_MS)
    )
    return FleetSnapshot(
        backends=tuple(draw(backends(f"b{index}")) for index in range(size)), taken_ms=NOW_MS, incumbent=draw(incumbent)
    )


KINDS = ("card", "email", "phone")


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _some(values: Any) -> st.SearchStrategy[Any]:
    return _maybe(st.frozensets(st.sampled_from(values), min_size=1))


def rules() -> st.SearchStrategy[tuple[Rule, ...]]:
    """Any rules, such as loading would refuse among them: what `decide` promises does not rest on that check."""
    match = st.builds(
        Match,
        classes=_some(PrivacyClass),
        any_entity=_some(KINDS),
        only_entities=_some(KINDS),
        models=_maybe(st.sampled_from([("small",), ("s*", "x"), ("other*",)])),
        keys=_maybe(st.sampled_from([("app-*",), ("ops",), ("*",)])),
        routes=_some(Route),
        features=_some(["tools", "logprobs", "lora"]),
        min_prompt_tokens=_maybe(st.integers(1, 6_000)),
        max_prompt_tokens=_maybe(st.integers(1, 12_000)),
        week_minutes=_maybe(st.just(((480, 1_080), (1_920, 2_520)))),
    )
    act = st.builds(
        Act,
        action=_maybe(st.sampled_from(Action)),
        zones=_some(Zone),
        mode=_maybe(st.sampled_from(Mode)),
        output_cap_tokens=_maybe(st.integers(1, 600)),
        mask_kinds=_some(KINDS),
        scan_answers=_maybe(st.booleans()),
    )
    # Most conditions are left out, so that rules often match.
    sparse = st.builds(lambda m, keep: Match(**{n: getattr(m, n) for n in keep}), match, st.sets(
        st.sampled_from(Match.__slots__), max_size=2))  # fmt: skip
    return st.lists(st.tuples(sparse, act), max_size=4).map(
        lambda pairs: tuple(Rule(f"r{n}", match, act) for n, (match, act) in enumerate(pairs))
    )


def policies() -> st.SearchStrategy[Policy]:
    """Any policy, `mask` included: it can be written down even though loading one is refused."""
    price = _maybe(st.floats(0, 5))
    return st.builds(
        Policy,
        mode=st.sampled_from(Mode),
        actions=st.dictionaries(st.sampled_from(PrivacyClass), st.sampled_from(Action)).map(lambda d: tuple(d.items())),
        slo=st.builds(Slo, st.floats(1, 9_000), st.floats(1, 900)),
        stale_after_ms=st.integers(100, 9_000),
        default_output_tokens=st.integers(1, 900),
        hysteresis_ratio=st.floats(0, 0.9),
        digest=st.just("sha256:0"),
        dwell_ms=st.integers(0, 9_000),
        cost=st.builds(Cost, price, price, st.floats(0, 3_000), st.floats(0, 30)),
        rules=rules(),
        stream_wait_ms=st.none() | st.floats(1, 90_000),
        whole_wait_ms=st.none() | st.floats(1, 90_000),
        shared_line_ratio=st.floats(0, 1),
    )


@st.composite
def requests(draw: st.DrawFn) -> DecisionFacts:
    """Any request for the model `small`."""
    made = facts(
        draw(st.sampled_from(PrivacyClass)),
        draw(st.sampled_from(Route)),
        prompt_tokens=draw(st.integers(1, 12_000)),
        max_tokens=draw(st.none() | st.integers(1, 5_000)),
        features=draw(st.sampled_from([frozenset(), frozenset({"tools"}), frozenset({"lora"})])),
    )
    return made._replace(
        entity_kinds=draw(st.frozensets(st.sampled_from(KINDS))),
        key_name=draw(st.sampled_from([None, "app-web", "ops"])),
        week_minute=draw(st.integers(0, 10_079)),
    )
