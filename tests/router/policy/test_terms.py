"""Which rule acts, and what it makes of a request."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from router.policy.bulk import Bulk
from router.policy.columns import columns_of
from router.policy.decision import decide
from router.policy.model import Act, Cost, Decision, DecisionFacts, Match, Mode, Policy, Reason, Rejection, Route, Rule
from router.policy.refusal import refusal
from router.policy.terms import terms_of
from shared.errors import PolicyBlocked
from shared.fleet import BackendState, Breaker, FleetSnapshot, ThermalLevel, Zone
from shared.privacy import Action, PrivacyClass
from tests.router.policy.builders import NOW_MS, backend, facts, fleet, policy, served

PERSONAL, SECRET, UNKNOWN = PrivacyClass.PERSONAL, PrivacyClass.SECRET, PrivacyClass.UNKNOWN
EDGE, CLOUD = backend("edge"), backend("cloud", Zone.CLOUD)


def ruled(*rules: tuple[Match, Act], **changes: Any) -> Policy:
    named = tuple(Rule(f"r{n}", match, act) for n, (match, act) in enumerate(rules, start=1))
    return replace(policy(**changes), rules=named)


def decided(asked: DecisionFacts, by: Policy, **changes: Any) -> Decision:
    return decide(asked._replace(**changes), fleet(EDGE, CLOUD), by, NOW_MS)


MATCHES: dict[str, tuple[Match, dict[str, Any], dict[str, Any]]] = {
    "class": (Match(classes=frozenset({SECRET})), {"privacy_class": SECRET}, {"privacy_class": PERSONAL}),
    "any kind": (
        Match(any_entity=frozenset({"card"})), {"entity_kinds": frozenset({"card", "email"})},
        {"entity_kinds": frozenset({"email"})}),
    "only kinds": (
        Match(only_entities=frozenset({"card"})), {"entity_kinds": frozenset({"card"})},
        {"entity_kinds": frozenset({"card", "email"})}),
    "only kinds, nothing found": (
        Match(only_entities=frozenset({"card"})), {"entity_kinds": frozenset({"card"})}, {"entity_kinds": frozenset()}),
    "key": (Match(keys=("app-*",)), {"key_name": "app-web"}, {"key_name": "web-app-"}),
    "no key": (Match(keys=("app-*",)), {"key_name": "app-"}, {"key_name": None}),
    "route": (Match(routes=frozenset({Route.EDGE})), {"route": Route.EDGE}, {"route": Route.AUTO}),
    "time": (Match(week_minutes=((60, 120),)), {"week_minute": 119}, {"week_minute": 120}),
}  # fmt: skip


@pytest.mark.parametrize("case", MATCHES)
def test_conditions(case: str) -> None:
    match, yes, no = MATCHES[case]
    by = ruled((match, Act(output_cap_tokens=9)))
    assert terms_of(facts()._replace(**yes), by).rule == "r1"
    assert terms_of(facts()._replace(**no), by).rule is None


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        (Match(models=("small",)), True),
        (Match(models=("sm*",)), True),
        (Match(models=("mal",)), False),
        (Match(min_prompt_tokens=100), True),
        (Match(min_prompt_tokens=101), False),
        (Match(max_prompt_tokens=100), True),
        (Match(max_prompt_tokens=99), False),
        (Match(features=frozenset({"tools"})), True),
        (Match(features=frozenset({"tools", "logprobs"})), False),
        (Match(), True),
    ],
)
def test_conditions_on_the_request(match: Match, fits: bool) -> None:
    asked = facts(features=frozenset({"tools"}))
    assert (terms_of(asked, ruled((match, Act(mode=Mode.FASTEST)))).rule == "r1") is fits


def test_the_first_rule_that_matches_acts_and_the_defaults_fill_in() -> None:
    by = ruled(
        (Match(classes=frozenset({PERSONAL})), Act(output_cap_tokens=5)),
        (Match(), Act(mode=Mode.ONLY_CLOUD, output_cap_tokens=9)),
    )
    decision = decided(facts(PERSONAL), by)
    assert (decision.rule, decision.output_cap_tokens, decision.mode) == ("r1", 5, Mode.PREFER_EDGE)
    assert decision.action is Action.EDGE_ONLY
    assert decided(facts(), by).rule == "r2"


def test_a_rules_zones_are_a_hard_filter_with_a_reason_of_its_own() -> None:
    by = ruled((Match(), Act(zones=frozenset({Zone.SITE, Zone.DEVICE}))), mode=Mode.PREFER_CLOUD)
    decision = decided(facts(), by)
    assert [c.backend_id for c in decision.candidates] == ["edge"]
    assert decision.reason is Reason.POLICY_RULE
    assert decision.allowed_zones == {Zone.SITE, Zone.DEVICE}
    assert [r.reason for r in decision.rejected] == [Rejection.RULE]
    to_the_cloud = decided(facts(route=Route.CLOUD), by)
    assert isinstance(refusal(to_the_cloud, facts()), PolicyBlocked)


def test_privacy_is_named_before_a_rule() -> None:
    by = ruled((Match(), Act(zones=frozenset({Zone.DEVICE}))))
    assert decided(facts(PERSONAL), by).reason is Reason.PRIVACY_REQUIRES_EDGE


def test_an_operator_may_let_a_named_class_out_for_what_was_found_alone() -> None:
    match = Match(classes=frozenset({PERSONAL}), only_entities=frozenset({"email"}))
    by = ruled((match, Act(action=Action.ANY, mode=Mode.PREFER_CLOUD)))
    emails = decided(facts(PERSONAL), by, entity_kinds=frozenset({"email"}))
    assert emails.candidates[0].backend_id == "cloud"
    with_card = decided(facts(PERSONAL), by, entity_kinds=frozenset({"email", "card"}))
    assert [c.backend_id for c in with_card.candidates] == ["edge"]


def test_unknown_is_held_to_rules_about_what_it_may_hold() -> None:
    by = ruled(
        (Match(classes=frozenset({SECRET}), any_entity=frozenset({"github_token"})), Act(action=Action.BLOCK)),
        (Match(any_entity=frozenset({"card"})), Act(zones=frozenset({Zone.DEVICE}))),
    )
    terms = terms_of(facts(UNKNOWN), by)
    assert terms.action is Action.BLOCK
    assert terms.by_rule == {Zone.DEVICE}
    other_key = ruled((Match(keys=("else",)), Act(action=Action.BLOCK)))
    assert terms_of(facts(UNKNOWN), other_key).action is Action.EDGE_ONLY


def test_a_cap_shortens_what_is_needed_and_expected() -> None:
    by = ruled((Match(), Act(output_cap_tokens=10)))
    small = backend("edge", models=(served(130),))
    long_answer = facts(prompt_tokens=100, max_tokens=4_000)
    assert decide(long_answer, fleet(small), policy(), NOW_MS).reason is Reason.CONTEXT_LENGTH_EXCEEDED
    assert decide(long_answer, fleet(small), by, NOW_MS).candidates
    own = backend("edge", output_cap_tokens=4)
    assert decide(facts(), fleet(own), by, NOW_MS).output_cap_tokens == 4


def test_prices_are_shown_and_weigh_only_where_they_are_given_a_weight() -> None:
    cheap = Cost(cloud_money_per_1k_tokens=2.0, edge_joules_per_token=3.0)
    by = policy(Mode.FASTEST, cost=cheap)
    quick_cloud = backend("cloud", Zone.CLOUD, ttft_ms=50.0)
    shown = decide(facts(), fleet(EDGE, quick_cloud), by, NOW_MS).candidates
    assert [(c.backend_id, c.cost_money, c.energy_joules) for c in shown] == [
        ("cloud", 0.3, None),
        ("edge", None, 450.0),
    ]
    weighed = policy(Mode.FASTEST, cost=replace(cheap, ms_per_money=10_000))
    assert decide(facts(), fleet(EDGE, quick_cloud), weighed, NOW_MS).candidates[0].backend_id == "edge"
    thirsty = policy(Mode.FASTEST, cost=replace(cheap, ms_per_money=10_000, ms_per_joule=10))
    assert decide(facts(), fleet(EDGE, quick_cloud), thirsty, NOW_MS).candidates[0].backend_id == "cloud"


def _large_fleet(seed: int, size: int) -> FleetSnapshot:
    draw = random.Random(seed)
    pick = draw.choice
    return fleet(
        *(
            backend(
                f"b{draw.randrange(10**9)}-{n}",
                pick(list(Zone)),
                state=pick([BackendState.READY] * 6 + list(BackendState)),
                models=pick([(served(pick([None, 300, 4_096])),)] * 4 + [(served(model="other"),), ()]),
                received_ms=pick([None, NOW_MS, NOW_MS - 2_999, NOW_MS - 9_000]),
                level=pick(list(ThermalLevel)),
                slots_busy=pick([0, 1, 2]),
                queued=pick([0, 0, 3, 4]),
                in_flight=pick([0, 0, 1, 5]),
                prefill_tokens_per_s=pick([None, 50.0, 400.0]),
                decode_tokens_per_s=pick([None, 8.0, 40.0]),
                ttft_ms=pick([None, 80.0, 900.0]),
                breaker=pick([Breaker.CLOSED] * 5 + list(Breaker)),
                cooling_until_ms=pick([None, None, NOW_MS + 10]),
            )
            for n in range(size)
        )
    )


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("seed", range(3))
def test_a_fleet_of_hundreds_is_ordered_alike_in_both_forms(mode: Mode, seed: int) -> None:
    """Beyond the head too, and ties by load and name."""
    large, by = _large_fleet(seed, 600), policy(mode, cost=Cost(1.0, 1.0, 500.0, 0.5))
    for privacy_class in PrivacyClass:
        asked = facts(privacy_class)
        listed = decide(asked, large, by, NOW_MS)
        in_columns = decide(asked, large, by, NOW_MS, Bulk(columns_of(large.backends)))
        assert in_columns.candidates[:1] == listed.candidates[:1]
        assert in_columns == listed
        assert in_columns.candidates[3:30] == listed.candidates[3:30]
        assert in_columns.rejected[-5:] == listed.rejected[-5:]
