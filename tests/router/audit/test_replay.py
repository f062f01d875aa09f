"""A decision made again from its record alone is the same decision."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given, settings

from router.audit.account import Account
from router.audit.evidence import LIMIT_BACKENDS, Evidence
from router.audit.proposal import proposals
from router.audit.query import COLUMNS, Wanted, as_csv, row_of, select
from router.audit.replay import replay
from router.policy.decision import decide
from router.policy.model import DecisionFacts, Mode, Policy
from router.policy.written import written_down
from router.privacy.model import Classification, Entity
from router.rulebook.defaults import PolicyDefaults
from router.rulebook.load import Vocabulary, parse, policy_of
from shared.errors import InvalidRequest
from shared.fleet import FleetSnapshot, Zone
from shared.openai.facts import Endpoint
from shared.privacy import PrivacyClass
from tests.router.policy.builders import MODEL, NOW_MS, backend, facts, fleet, fleets, policies, policy, requests


def recorded(asked: DecisionFacts, seen: FleetSnapshot, by: Policy) -> dict[str, Any]:
    """The record of a request as it comes back from the disk."""
    account = Account("dec-1", "req-1", Endpoint.CHAT, 1_700_000_000.0, NOW_MS, key_name=asked.key_name, stream=True)
    account.decision = decide(asked, seen, by, NOW_MS)
    account.evidence = Evidence(asked, seen, NOW_MS)
    account.privacy_class = asked.privacy_class
    account.prompt_tokens_estimate = asked.request.prompt_tokens_estimate
    account.model = MODEL if any(b.model(MODEL) for b in seen.backends) else None
    found: dict[str, Any] = orjson.loads(orjson.dumps(account.record(NOW_MS + 5)))
    return found


@settings(deadline=None, max_examples=150)
@given(requests(), fleets(), policies())
def test_every_decision_can_be_replayed(asked: DecisionFacts, seen: FleetSnapshot, by: Policy) -> None:
    record = recorded(asked, seen, by)
    again = replay(record, orjson.loads(orjson.dumps(written_down(by))))
    # The strategy gives policies a digest that is not theirs.
    assert set(again.differences) <= {"policy"}


@pytest.mark.parametrize(
    ("part", "value"),
    [("reason", "fastest"), ("action", "block"), ("rejected", []), ("candidates", []), ("allowed_zones", ["cloud"])],
)
def test_a_record_that_says_something_else_shows(part: str, value: Any) -> None:
    record = recorded(facts(PrivacyClass.PERSONAL), fleet(backend("e"), backend("c", Zone.CLOUD)), policy())
    record["decision"][part] = value
    assert replay(record, written_down(policy())).differences == (part,)


def test_another_policy_shows() -> None:
    record = recorded(facts(), fleet(backend("e"), backend("c", Zone.CLOUD)), policy())
    assert "mode" in replay(record, written_down(policy(Mode.PREFER_CLOUD))).differences


def test_of_a_large_fleet_the_first_places_are_kept_and_replayed() -> None:
    draw = random.Random(5)
    seen = fleet(*(backend(f"b{n}", prefill_tokens_per_s=draw.uniform(10, 900)) for n in range(500)))
    record = recorded(facts(), seen, policy())
    assert len(record["fleet"]) == LIMIT_BACKENDS and record["fleet_left_out"] == 500 - LIMIT_BACKENDS
    assert len(orjson.dumps(record)) < 32_000
    again = replay(record, written_down(policy()))
    assert again.differences == () and again.left_out == 500 - LIMIT_BACKENDS
    record["decision"]["candidates"].reverse()
    assert replay(record, written_down(policy())).differences == ("candidates",)


def test_a_request_that_was_never_decided_cannot_be_replayed() -> None:
    with pytest.raises(InvalidRequest, match="before it was decided"):
        replay({"decision": None}, {})
    with pytest.raises(InvalidRequest, match="does not hold"):
        replay({"decision": {}}, {})


def _request(n: int, **changes: Any) -> dict[str, Any]:
    record = recorded(facts(PrivacyClass.PERSONAL), fleet(backend("e")), policy())
    attempt = {"tier": "edge", "backend": "e", "outcome": "ok"}
    entities = [{"kind": "email", "position": "messages[0].content", "start": 0, "end": 5}]
    return {**record, "seq": n, "at": float(n), "attempts": [attempt], "entities": entities, **changes}


@pytest.mark.parametrize(
    ("wanted", "seqs"),
    [
        (Wanted(), [1, 2, 3]),
        (Wanted(privacy_class=PrivacyClass.PERSONAL, tier="edge", entity="email"), [1, 2, 3]),
        (Wanted(outcome="ok"), [2]),
        (Wanted(key="app"), [3]),
        (Wanted(since_s=2.0, until_s=3.0), [2]),
        (Wanted(backend="other"), []),
        (Wanted(entity="mail"), []),
    ],
)
def test_queries(wanted: Wanted, seqs: list[int]) -> None:
    records = [_request(1), _request(2, outcome="ok"), _request(3, key="app"), {"kind": "policy", "seq": 4, "at": 2.0}]
    assert [r["seq"] for r in select(records, wanted, None)] == seqs
    assert len(list(select(records, wanted, 1))) == min(1, len(seqs))


def test_a_request_is_found_by_its_trace_and_by_its_own_id() -> None:
    records = [_request(1, trace_id="a" * 32, request_id="mine"), _request(2, trace_id=None, request_id="other")]
    for wanted in (Wanted(trace_id="a" * 32), Wanted(request_id="mine")):
        assert [each["request_id"] for each in select(records, wanted, None)] == ["mine"]


def test_a_table_is_csv_that_no_spreadsheet_runs() -> None:
    head, row = as_csv([_request(1, model="=cmd|'/c calc'!A1", key="a,b")])
    assert head.rstrip().split(",") == list(COLUMNS)
    assert "'=cmd" in row and '"a,b"' in row
    assert row_of(_request(1))["kinds"] == "email"


def _said(n: int, said: str, found: str = "personal", kinds: tuple[str, ...] = ("phone",)) -> dict[str, Any]:
    return {
        "kind": "feedback", "about": f"dec-{n}", "class_said": said, "class_found": found, "kinds": list(kinds),
        "key": None,
    }  # fmt: skip


def test_corrections_become_a_proposal_once_enough_agree() -> None:
    votes = [_said(n, "public") for n in range(3)] + [_said(9, "personal"), _said(8, "public", "unknown")]
    assert proposals(votes, least=4) == []
    [found] = proposals(votes, least=3)
    assert found.is_looser and found.count == 3
    assert found.rule() == {
        "name": "personal-to-public-phone",
        "match": {"class": ["personal"], "only_entities": ["phone"]},
        "act": {"action": "any"},
    }


def test_of_two_corrections_of_one_request_the_newest_counts() -> None:
    """Records come newest first."""
    assert proposals([_said(1, "personal"), _said(1, "public")], least=1) == []


def test_a_stricter_class_is_proposed_and_a_looser_one_never_for_everything() -> None:
    [kept] = proposals([_said(1, "secret", "public", ())], least=1)
    assert not kept.is_looser and kept.rule()["act"] == {"action": "edge_only"}
    assert proposals([_said(1, "public", "personal", ())], least=1) == []


@pytest.mark.parametrize("found", ["public", "personal", "secret"])
@pytest.mark.parametrize("said", ["public", "personal", "secret"])
def test_whatever_is_proposed_could_be_taken_over(found: str, said: str) -> None:
    votes = [_said(n, said, found, ("openai_key", "phone")[: n + 1]) for n in range(2)]
    votes += [{**_said(9, said, found, ()), "key": "My App: 1"}]
    text = yaml.safe_dump({"rules": [each.rule() for each in proposals(votes, least=1)]})
    known = Vocabulary(frozenset({"openai_key", "phone"}))
    assert policy_of(parse(text.encode(), Path("p")), PolicyDefaults(), known)


def test_entities_never_carry_a_value() -> None:
    account = Account("d", "r", Endpoint.CHAT, 0.0, 0)
    account.classification = Classification(PrivacyClass.PERSONAL, (Entity("card", "messages[0]", 3, 22),), True)
    [entity] = account.record(1)["entities"]
    assert set(entity) >= {"kind", "position", "start", "end"} and "value" not in entity
