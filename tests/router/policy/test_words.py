"""The sentences that explain a decision."""

from __future__ import annotations

from enum import StrEnum

from router.policy import words
from router.policy.decision import decide
from router.policy.model import Reason, Rejection, Route
from shared.fleet import ThermalLevel, Zone
from shared.privacy import Action, PrivacyClass
from tests.router.policy.builders import NOW_MS, backend, facts, fleet, policy


def test_a_personal_request_on_an_overheated_device() -> None:
    hot = backend("phone", level=ThermalLevel.CRITICAL)
    decision = decide(facts(PrivacyClass.PERSONAL), fleet(hot, backend("ray", Zone.CLOUD)), policy(), NOW_MS)
    assert words.explain(decision) == (
        "This request holds personal data.",
        "It must stay on the edge.",
        "It is refused: privacy rules out the cloud, and no edge backend can serve it now.",
        "Not phone (device): it is too hot to take new work.",
        "Not ray (cloud): privacy does not let this request leave the edge.",
    )


def test_a_public_request_names_its_choice_and_what_follows() -> None:
    decision = decide(facts(), fleet(backend("phone"), backend("ray", Zone.CLOUD)), policy(), NOW_MS)
    lines = words.explain(decision)
    assert lines[2] == (
        "It goes to phone (device), because it is of the preferred tier and is expected to be fast enough; "
        "first token expected after 250 ms, then 10 ms a token."
    )
    assert lines[3].startswith("If that fails before the first word: ray (cloud)")


def test_every_member_has_its_words() -> None:
    tables: list[tuple[type[StrEnum], object]] = [
        (PrivacyClass, words._CLASS),
        (Action, words._ACTION),
        (Reason, words._REASON),
        (Rejection, words._REJECTION),
    ]
    for members, table in tables:
        assert set(table) == set(members)  # type: ignore[call-overload]


def test_a_class_that_the_caller_asked_for_is_not_said_to_be_found() -> None:
    decision = decide(facts(PrivacyClass.SECRET), fleet(backend("phone")), policy(), NOW_MS)
    assert words.explain(decision, PrivacyClass.PUBLIC)[0] == (
        "Nothing personal or secret was found in this request. It counts as secret, because the caller or an earlier "
        "turn of the session says so."
    )
    assert words.explain(decision, PrivacyClass.SECRET)[0] == "This request holds a credential."


def test_a_place_that_the_caller_left_out_is_not_said_to_be_unable() -> None:
    both = fleet(backend("phone"), backend("ray", Zone.CLOUD))
    personal = decide(facts(PrivacyClass.PERSONAL, route=Route.CLOUD), both, policy(), NOW_MS)
    assert "It is refused: privacy rules out the cloud, and the caller everything else." in words.explain(personal)
    public = decide(facts(route=Route.CLOUD), fleet(backend("phone")), policy(), NOW_MS)
    assert "It is refused: nothing of the tier that the caller chose (cloud) can serve it now." in words.explain(public)
