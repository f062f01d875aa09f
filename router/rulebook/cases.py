"""Tries a policy on its own cases: each is decided over a fleet of two, and compared with what it expects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from router.policy.decision import decide
from router.policy.model import Decision, DecisionFacts, Policy
from router.rulebook.document import CaseDocument, CaseFleet, CaseRequest
from shared.fleet import BackendSnapshot, BackendState, FleetSnapshot, ServedModel, ThermalLevel, Zone
from shared.openai.facts import Endpoint, RequestFacts
from shared.privacy import PrivacyClass

Scan = Callable[[str], tuple[PrivacyClass, frozenset[str]]]
"""What the scanner finds in a text: class and kinds."""

_NOW_MS = 1_000_000
_QUICK: dict[str, Any] = {"prefill_tokens_per_s": 50_000.0, "decode_tokens_per_s": 100.0}
_SLOW: dict[str, Any] = {"prefill_tokens_per_s": 5.0, "decode_tokens_per_s": 1.0}
_FULL: dict[str, Any] = {"slots_total": 1, "slots_busy": 1, "queued": 0, "queue_limit": 0}


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case after it was tried. `faults` says what differs, empty where nothing does."""

    name: str
    tier: str
    rule: str | None
    reason: str
    faults: tuple[str, ...]


def run_cases(cases: Iterable[CaseDocument], policy: Policy, scan: Scan) -> Iterator[CaseResult]:
    """Try each case. `scan` is called for those that give a text."""
    for case in cases:
        decision = decide(_facts(case.request, scan), _fleet(case), policy, _NOW_MS)
        tier = decision.candidates[0].zone.tier if decision.candidates else "none"
        faults = tuple(_faults(case, decision, tier))
        yield CaseResult(case.name, tier, decision.rule, decision.reason, faults)


def _faults(case: CaseDocument, decision: Decision, tier: str) -> Iterator[str]:
    expected = case.expect
    got = {
        "tier": tier,
        "rule": decision.rule,
        "action": decision.action,
        "mode": decision.mode,
        "reason": decision.reason,
        "output_cap_tokens": decision.output_cap_tokens,
    }
    for name in got:
        wanted = getattr(expected, name)
        if name in expected.model_fields_set and wanted != got[name]:
            yield f"{name} is {_shown(got[name])}, expected {_shown(wanted)}"
    if expected.never is not None and any(c.zone.tier == expected.never for c in decision.candidates):
        yield f"{expected.never} is among the candidates"


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _facts(request: CaseRequest, scan: Scan) -> DecisionFacts:
    privacy_class, kinds = request.privacy_class or PrivacyClass.PUBLIC, request.entities
    if request.text is not None:
        privacy_class, kinds = scan(request.text)
    return DecisionFacts(
        request=RequestFacts(
            Endpoint.CHAT, request.model, False, request.prompt_tokens, request.max_tokens, request.features
        ),
        privacy_class=privacy_class,
        entity_kinds=kinds,
        route=request.route,
        key_name=request.key,
        week_minute=request.week_minute,
    )


def _fleet(case: CaseDocument) -> FleetSnapshot:
    model = ServedModel(model_id=case.request.model)
    edge, cloud = _edge(case.fleet, model), _cloud(case.fleet, model)
    return FleetSnapshot(tuple(backend for backend in (edge, cloud) if backend is not None), _NOW_MS)


def _edge(given: CaseFleet, model: ServedModel) -> BackendSnapshot | None:
    if given.edge == "gone":
        return None
    level = ThermalLevel(given.edge) if given.edge in set(ThermalLevel) else ThermalLevel.NOMINAL
    speed, load = _SLOW if given.edge == "slow" else _QUICK, _FULL if given.edge == "full" else {}
    return BackendSnapshot(
        "edge", given.edge_zone, "http://edge", BackendState.READY, (model,), _NOW_MS, level, **speed, **load
    )


def _cloud(given: CaseFleet, model: ServedModel) -> BackendSnapshot | None:
    if given.cloud == "gone":
        return None
    return BackendSnapshot(
        "cloud",
        Zone.CLOUD,
        "http://cloud",
        BackendState.READY,
        (model,),
        None,
        ttft_ms=60_000.0 if given.cloud == "slow" else 100.0,
        decode_tokens_per_s=100.0,
        cooling_until_ms=_NOW_MS + 5_000 if given.cloud == "cooling" else None,
    )
