"""Decides a recorded request again, from the record and the policy in the log alone, and says whether the answer is the
same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from router.audit.account import decision_facts
from router.audit.evidence import read_evidence
from router.policy.decision import decide
from router.policy.model import Decision, DecisionFacts, Policy
from router.policy.written import read_back
from shared.errors import InvalidRequest

_WHOLE_FLEET = ("candidates", "rejected", "rejected_counts", "reason", "largest_context_tokens", "output_cap_tokens")
"""Parts of a decision that take every backend; of the first ones of a large fleet, only their order can be seen."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The decision as it comes out now. `differences` names each part of the recorded one that it does not share."""

    decision: Decision
    differences: tuple[str, ...]
    left_out: int
    """Backends of a large fleet that the record does not hold."""


def replay(record: Mapping[str, Any], policy: Mapping[str, Any]) -> Replay:
    """Decide `record` again under `policy`, as the log has it.

    Raises:
        InvalidRequest: the request never came to a decision, or the record does not hold what it takes.
    """
    recorded = record.get("decision")
    if recorded is None:
        raise InvalidRequest("This request ended before it was decided; there is nothing to replay.", param="id")
    try:
        evidence, rules = read_evidence(record), read_back(policy)
    except (KeyError, TypeError, ValueError):
        raise InvalidRequest("The record does not hold what a replay takes.", param="id") from None
    facts = evidence.facts if record["facts"]["model_known"] else _stand_in(evidence.facts, rules, recorded.get("rule"))
    decision = decide(facts, evidence.fleet, rules, evidence.now_ms)
    now: dict[str, Any] = orjson.loads(orjson.dumps(decision_facts(decision)))
    left_out = record["fleet_left_out"]
    if left_out == 0:
        return Replay(decision, tuple(name for name in recorded if recorded[name] != now.get(name)), 0)
    differing = [name for name in recorded if name not in _WHOLE_FLEET and recorded[name] != now.get(name)]
    listed = min(len(recorded["candidates"]), len(now["candidates"]))
    if recorded["candidates"][:listed] != now["candidates"][:listed]:
        differing.append("candidates")
    return Replay(decision, tuple(differing), left_out)


def _stand_in(facts: DecisionFacts, policy: Policy, rule_name: str | None) -> DecisionFacts:
    """Facts for a model whose name the log does not hold: one that falls under the recorded rule as it did."""
    acted = next((rule for rule in policy.rules if rule.name == rule_name), None)
    if acted is None or acted.match.models is None:
        return facts
    name = acted.match.models[0].replace("*", "")
    return facts._replace(request=facts.request._replace(model=name))
