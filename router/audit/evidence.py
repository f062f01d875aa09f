"""What a decision rested on, in a record: facts and figures of the fleet, enough to decide again, and no text.

A fleet of thousands would make records of megabytes: of a large one the first candidates and the first of the others
are kept, and the record says how many were left out. Times are ages, so that a replay needs no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from router.policy.model import Decision, DecisionFacts, Route
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
from shared.privacy import PrivacyClass

LIMIT_BACKENDS = 32
UNNAMED_MODEL = "(not served here)"
"""Stands for the name of a model that no backend serves: it is the caller's own text."""
_OTHER = ServedModel(model_id="(another)")
_SPECIAL = frozenset({"backend_id", "zone", "url", "state", "models", "received_ms", "cooling_until_ms"})
_READ = {"level": ThermalLevel, "breaker": Breaker, "ttft_ms_by_prompt": tuple}


class Evidence(NamedTuple):
    """What `decide` was called with, beside the policy."""

    facts: DecisionFacts
    fleet: FleetSnapshot
    now_ms: int


def write_evidence(evidence: Evidence, decision: Decision, *, model_known: bool) -> dict[str, Any]:
    """As JSON values."""
    facts, fleet, now_ms = evidence.facts, evidence.fleet, evidence.now_ms
    kept = fleet.backends
    if len(kept) > LIMIT_BACKENDS:
        chosen = [c.backend_id for c in decision.candidates[:LIMIT_BACKENDS]]
        chosen += [r.backend_id for r in decision.rejected[: LIMIT_BACKENDS - len(chosen)]]
        kept = tuple(backend for name in sorted(chosen) if (backend := fleet.backend(name)) is not None)
    request, incumbent = facts.request, fleet.incumbent
    return {
        "facts": {
            "model_known": model_known,
            "max_tokens": request.max_tokens,
            "features": sorted(request.features),
            "kinds": sorted(facts.entity_kinds),
            "route": facts.route,
            "maskable": facts.maskable,
            "week_minute": facts.week_minute,
        },
        "fleet": [_row(backend, request.model, now_ms) for backend in kept],
        "fleet_left_out": len(fleet.backends) - len(kept),
        "incumbent": None if incumbent is None else {"tier": incumbent.tier, "age_ms": now_ms - incumbent.since_ms},
    }


def read_evidence(record: Mapping[str, Any]) -> Evidence:
    """The evidence in a record of a decided request; its now is 0.

    Raises:
        KeyError, TypeError, ValueError: there is none in it.
    """
    facts, incumbent = record["facts"], record["incumbent"]
    model = record["model"] if facts["model_known"] else UNNAMED_MODEL
    request = RequestFacts(
        endpoint=Endpoint(record["endpoint"]),
        model=model,
        stream=bool(record["stream"]),
        prompt_tokens_estimate=record["prompt_tokens_estimate"],
        max_tokens=facts["max_tokens"],
        features=frozenset(facts["features"]),
    )
    return Evidence(
        facts=DecisionFacts(
            request=request,
            privacy_class=PrivacyClass(record["class"]),
            entity_kinds=frozenset(facts["kinds"]),
            route=Route(facts["route"]),
            maskable=facts["maskable"],
            key_name=record["key"],
            week_minute=facts["week_minute"],
        ),
        fleet=FleetSnapshot(
            backends=tuple(_backend(row, model) for row in record["fleet"]),
            taken_ms=0,
            incumbent=None if incumbent is None else Incumbent(incumbent["tier"], -incumbent["age_ms"]),
        ),
        now_ms=0,
    )


def _row(backend: BackendSnapshot, model: str, now_ms: int) -> dict[str, Any]:
    """What a decision reads of one backend; figures that have their default are left out."""
    row: dict[str, Any] = {"backend": backend.backend_id, "zone": backend.zone, "state": backend.state}
    served = backend.model(model)
    if served is not None:
        row["context_tokens"], row["features"] = served.context_tokens, served.features
    row["serves"] = "model" if served is not None else "others" if backend.models else "not said"
    if backend.received_ms is not None:
        row["age_ms"] = now_ms - backend.received_ms
    if backend.cooling_until_ms is not None:
        row["cooling_ms"] = backend.cooling_until_ms - now_ms
    for (name, default), value in zip(_FIGURES, _READ_FIGURES(backend), strict=True):
        if value != default:
            row[name] = value
    return row


def _backend(row: Mapping[str, Any], model: str) -> BackendSnapshot:
    models: tuple[ServedModel, ...] = (_OTHER,) if row["serves"] == "others" else ()
    if row["serves"] == "model":
        context, features = row["context_tokens"], tuple(row["features"])
        models = (ServedModel(model_id=model, context_tokens=context, features=features),)
    figures = {name: _READ.get(name, _as_is)(row[name]) for name, _ in _FIGURES if name in row}
    return BackendSnapshot(
        backend_id=row["backend"],
        zone=Zone(row["zone"]),
        url="",
        state=BackendState(row["state"]),
        models=models,
        received_ms=-row["age_ms"] if "age_ms" in row else None,
        cooling_until_ms=row.get("cooling_ms"),
        **figures,
    )


def _as_is(value: Any) -> Any:
    return value


_FIGURES = tuple(each for each in BackendSnapshot._field_defaults.items() if each[0] not in _SPECIAL)
_READ_FIGURES = attrgetter(*(name for name, _ in _FIGURES))
