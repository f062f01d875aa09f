"""What holds for every decision, whatever the fleet, the policy and the caller say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.policy.bulk import Bulk
from router.policy.columns import columns_of
from router.policy.decision import decide
from router.policy.listed import Listed
from router.policy.model import DecisionFacts, Policy, Route
from router.policy.refusal import refusal
from router.policy.terms import terms_of
from router.policy.words import explain
from router.policy.zones import action_for
from shared.errors import CapacityError, ClientError
from shared.fleet import BackendSnapshot, FleetSnapshot, ThermalLevel, Zone
from shared.privacy import Action, PrivacyClass, narrowest
from tests.router.policy.builders import EDGE_ZONES, KINDS, NOW_MS, backends, fleets, policies, requests
from tests.router.policy.drawn import drawn_backend, drawn_fleet, drawn_policy, drawn_request

_UNTIMED = settings(deadline=None, max_examples=80)
"""A busy machine is no failure."""

_HEAT = [ThermalLevel.NOMINAL, ThermalLevel.WARM, ThermalLevel.HOT, ThermalLevel.CRITICAL]


@_UNTIMED
@given(requests(), fleets(), policies())
def test_no_candidate_stands_outside_the_allowed_zones(
    facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy
) -> None:
    """PV-01, PV-03: whatever fails or is asked for, what must stay on the edge has no candidate elsewhere."""
    decision = decide(facts, fleet, policy, NOW_MS)
    assert {c.zone for c in decision.candidates} <= decision.allowed_zones
    if decision.action is Action.EDGE_ONLY:
        assert decision.allowed_zones <= EDGE_ZONES
    if decision.action is Action.BLOCK:
        assert not decision.allowed_zones
    if facts.route is Route.EDGE:
        assert decision.allowed_zones <= EDGE_ZONES
    if facts.route is Route.CLOUD:
        assert decision.allowed_zones <= {Zone.CLOUD}


@_UNTIMED
@given(requests(), fleets(), policies())
def test_without_rules_the_action_is_the_classs(facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy) -> None:
    decision = decide(facts, fleet, replace(policy, rules=()), NOW_MS)
    assert decision.action is action_for(policy, facts.privacy_class)
    if facts.privacy_class is PrivacyClass.UNKNOWN:
        assert decision.action is not Action.MASK


@_UNTIMED
@given(requests(), policies(), st.sampled_from(PrivacyClass), st.frozensets(st.sampled_from(KINDS)))
def test_unknown_is_never_better_off_than_any_class_with_anything_found(
    facts: DecisionFacts, policy: Policy, other: PrivacyClass, kinds: frozenset[str]
) -> None:
    """PI-11: not fully scanned is held to every rule that could apply to what it may contain."""
    unknown = terms_of(facts._replace(privacy_class=PrivacyClass.UNKNOWN), policy)
    known = terms_of(facts._replace(privacy_class=other, entity_kinds=kinds), policy)
    assert narrowest(unknown.action, known.action) is unknown.action
    assert _farthest(unknown.by_rule) <= _farthest(known.by_rule)


@_UNTIMED
@given(requests(), policies())
def test_a_rule_without_a_class_only_narrows(facts: DecisionFacts, policy: Policy) -> None:
    classless = tuple(replace(rule, match=replace(rule.match, classes=None)) for rule in policy.rules)
    default = action_for(policy, facts.privacy_class)
    action = terms_of(facts, replace(policy, rules=classless)).action
    assert narrowest(action, default) is action


@_UNTIMED
@given(requests(), fleets(), policies())
def test_a_rules_cap_bounds_every_candidate(facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy) -> None:
    decision = decide(facts, fleet, policy, NOW_MS)
    if decision.rule_cap_tokens is not None:
        for candidate in decision.candidates:
            assert candidate.output_cap_tokens is not None
            assert candidate.output_cap_tokens <= decision.rule_cap_tokens


@pytest.mark.parametrize(("sizes", "cases"), [((0, 1, 2, 3, 6), 250), ((30, 600), 16)], ids=["small", "large"])
def test_columns_answer_what_the_list_answers(sizes: Sequence[int], cases: int) -> None:
    """Figure by figure, to the last candidate; also where either form was made from that of an earlier fleet."""
    for seed in range(cases):
        draw = Random(seed)
        fleet, policy = drawn_fleet(draw, draw.choice(sizes)), drawn_policy(draw)
        asked = [drawn_request(draw) for _ in range(3)]
        columns, listed = columns_of(fleet.backends), Listed(fleet.backends)
        for facts in asked:
            plain = decide(facts, fleet, policy, NOW_MS)
            assert decide(facts, fleet, policy, NOW_MS, Bulk(columns)) == plain, seed
        later, changed = _changed(draw, columns.backends)
        for facts in asked:
            plain = decide(facts, replace(fleet, backends=later), policy, NOW_MS)
            assert decide(facts, fleet, policy, NOW_MS, Bulk(columns.updated(later, changed))) == plain, seed
            assert decide(facts, fleet, policy, NOW_MS, Bulk(columns.updated(later))) == plain, seed
            assert decide(facts, fleet, policy, NOW_MS, listed.updated(later, changed)) == plain, seed


def _changed(draw: Random, backends: tuple[BackendSnapshot, ...]) -> tuple[tuple[BackendSnapshot, ...], list[int]]:
    """Some backends with other figures, and at which places they stand."""
    changed = draw.sample(range(len(backends)), draw.randint(0, min(3, len(backends))))
    later = list(backends)
    for at in changed:
        other = drawn_backend(draw, later[at].backend_id)
        later[at] = draw.choice([other, later[at]._replace(in_flight=other.in_flight, breaker=other.breaker)])
    return tuple(later), changed


@_UNTIMED
@given(requests(), fleets(), policies())
def test_pv_03_what_cannot_be_masked_stays_on_the_edge(
    facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy
) -> None:
    decision = decide(facts._replace(maskable=False), fleet, policy, NOW_MS)
    assert decision.action is not Action.MASK
    if terms_of(facts, policy).action is Action.MASK:
        assert decision.allowed_zones <= EDGE_ZONES


@_UNTIMED
@given(requests(), policies())
def test_pv_03_only_what_was_scanned_as_a_whole_is_masked(facts: DecisionFacts, policy: Policy) -> None:
    """And of that, where a rule names the kinds to mask, only what holds no other."""
    terms = terms_of(facts, policy)
    if terms.action is Action.MASK:
        assert facts.privacy_class is not PrivacyClass.UNKNOWN
        assert terms.mask_kinds is None or facts.entity_kinds <= terms.mask_kinds


@_UNTIMED
@given(requests(), fleets(), policies())
def test_every_backend_is_a_candidate_or_has_exactly_one_rejection(
    facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy
) -> None:
    decision = decide(facts, fleet, policy, NOW_MS)
    named = [c.backend_id for c in decision.candidates] + [r.backend_id for r in decision.rejected]
    assert sorted(named) == sorted(b.backend_id for b in fleet.backends)


@_UNTIMED
@given(requests(), fleets(), policies(), st.randoms(use_true_random=False))
def test_the_order_of_the_fleet_changes_nothing(facts, fleet, policy, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(fleet.backends)
    random.shuffle(shuffled)
    again = decide(facts, replace(fleet, backends=tuple(shuffled)), policy, NOW_MS)
    assert again == decide(facts, fleet, policy, NOW_MS)


@_UNTIMED
@given(requests(), fleets(), policies(), backends("new"))
def test_one_more_backend_never_widens(
    facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy, newcomer: BackendSnapshot
) -> None:
    before = decide(facts, fleet, policy, NOW_MS)
    after = decide(facts, replace(fleet, backends=(*fleet.backends, newcomer)), policy, NOW_MS)
    assert after.allowed_zones == before.allowed_zones
    assert {c.backend_id for c in after.candidates} - {"new"} == {c.backend_id for c in before.candidates}
    assert [r for r in after.rejected if r.backend_id != "new"] == list(before.rejected)


@_UNTIMED
@given(requests(), fleets(), policies(), st.data())
def test_more_heat_or_load_never_improves_a_place(
    facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy, data: st.DataObject
) -> None:
    if not fleet.backends:
        return
    index = data.draw(st.integers(0, len(fleet.backends) - 1))
    cooler = fleet.backends[index]
    rung = _HEAT.index(cooler.level) if cooler.level in _HEAT else _HEAT.index(ThermalLevel.WARM)
    hotter = cooler._replace(
        level=_HEAT[data.draw(st.integers(rung, 3))],
        derate_ratio=cooler.derate_ratio * data.draw(st.floats(0.1, 1)),
        queued=(cooler.queued or 0) + data.draw(st.integers(0, 5)),
        in_flight=cooler.in_flight + data.draw(st.integers(0, 3)),
    )
    others = tuple(b for b in fleet.backends if b is not cooler)
    before = decide(facts, replace(fleet, backends=(cooler, *others)), policy, NOW_MS)
    after = decide(facts, replace(fleet, backends=(hotter, *others)), policy, NOW_MS)
    place_before, place_after = _place(before, cooler.backend_id), _place(after, cooler.backend_id)
    assert place_after is None or (place_before is not None and place_after >= place_before)


@_UNTIMED
@given(requests(), fleets(), policies())
def test_a_decision_without_candidates_has_a_typed_error_and_words_for_it(
    facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy
) -> None:
    decision = decide(facts, fleet, policy, NOW_MS)
    lines = explain(decision)
    expected = 3 + (decision.rule is not None) + max(0, len(decision.candidates) - 1) + len(decision.rejected)
    assert len(lines) == expected
    if not decision.candidates:
        error = refusal(decision, facts)
        assert isinstance(error, (CapacityError, ClientError))
        assert error.retry_after_s is None or error.retry_after_s >= 1


def _place(decision, backend_id: str) -> int | None:  # type: ignore[no-untyped-def]
    ids = [c.backend_id for c in decision.candidates]
    return ids.index(backend_id) if backend_id in ids else None


def _farthest(allowed: frozenset[Zone]) -> int:
    return max(list(Zone).index(zone) for zone in allowed)
