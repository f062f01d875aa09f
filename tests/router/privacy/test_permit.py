"""A permit exists only behind a finished classification and a decision that lets the body travel."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, settings

from router.policy.decision import decide
from router.policy.model import Decision, DecisionFacts, Policy
from router.privacy.model import Classification
from router.privacy.permit import EgressPermit, body_digest, mint
from shared.errors import PrivacyUnavailable
from shared.fleet import FleetSnapshot, Zone
from shared.privacy import Action, PrivacyClass
from tests.router.policy.builders import NOW_MS, backend, facts, fleet, fleets, policies, policy, requests

_UNTIMED = settings(deadline=None, max_examples=80)
"""A busy machine is no failure."""

BODY = b'{"model":"m"}'
PUBLIC = Classification(PrivacyClass.PUBLIC, (), complete=True)
FLEET = fleet(backend("edge"), backend("cloud", Zone.CLOUD))


def _decision(privacy_class: PrivacyClass = PrivacyClass.PUBLIC) -> Decision:
    return decide(facts(privacy_class), FLEET, policy(), NOW_MS)


def _permit() -> EgressPermit:
    return mint(_decision(), PUBLIC, body_digest(BODY), "d-1")


def test_a_permit_covers_exactly_the_bytes_it_was_given_for() -> None:
    permit = _permit()
    assert permit.covers(BODY)
    assert not permit.covers(BODY + b" ")
    assert (permit.decision_id, permit.privacy_class, permit.action) == ("d-1", PrivacyClass.PUBLIC, Action.ANY)


@pytest.mark.parametrize("privacy_class", [PrivacyClass.PERSONAL, PrivacyClass.SECRET, PrivacyClass.UNKNOWN])
def test_pv_03_no_permit_where_the_action_keeps_the_body_on_the_edge(privacy_class: PrivacyClass) -> None:
    found = Classification(privacy_class, (), complete=True)
    with pytest.raises(PrivacyUnavailable):
        mint(_decision(privacy_class), found, body_digest(BODY), "d")


@pytest.mark.parametrize("cause", ["error", "timeout", "overflow", "undecodable"])
def test_pi_11_no_permit_for_a_scan_that_did_not_finish_even_if_the_decision_says_public(cause: str) -> None:
    unfinished = Classification(PrivacyClass.UNKNOWN, (), complete=False, cause=cause)
    with pytest.raises(PrivacyUnavailable):
        mint(_decision(), unfinished, body_digest(BODY), "d")


@_UNTIMED
@given(requests(), fleets(), policies())
def test_a_permit_is_given_exactly_where_cloud_is_allowed_and_the_body_may_travel_as_it_is(
    asked: DecisionFacts, any_fleet: FleetSnapshot, any_policy: Policy
) -> None:
    decision = decide(asked, any_fleet, any_policy, NOW_MS)
    found = Classification(asked.privacy_class, (), complete=asked.privacy_class is not PrivacyClass.UNKNOWN)
    travels = decision.action is Action.ANY or (
        decision.action is Action.MASK and found.privacy_class is PrivacyClass.PUBLIC
    )
    may = found.complete and travels and Zone.CLOUD in decision.allowed_zones
    try:
        mint(decision, found, body_digest(BODY), "d")
    except PrivacyUnavailable:
        assert not may
    else:
        assert may


def test_nobody_else_can_make_copy_or_change_one() -> None:
    values = {"decision_id": "d", "privacy_class": PrivacyClass.PUBLIC, "action": Action.ANY, "body_digest": "0"}
    for seal in (None, object(), "seal"):
        with pytest.raises(PrivacyUnavailable):
            EgressPermit(seal, **values)  # type: ignore[arg-type]
    permit = _permit()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(permit)
    with pytest.raises(AttributeError):
        permit.body_digest = body_digest(b"other")
    with pytest.raises(AttributeError):
        del permit.body_digest
    with pytest.raises(TypeError):
        type("Loose", (EgressPermit,), {})


def test_a_decision_with_no_cloud_zone_gives_none() -> None:
    narrowed = _decision()._replace(allowed_zones=frozenset({Zone.DEVICE}))
    with pytest.raises(PrivacyUnavailable):
        mint(narrowed, PUBLIC, body_digest(BODY), "d")
