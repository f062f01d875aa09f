"""Which values each label of each metric takes: from the closed sets that the program itself counts by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edge.scheduling import speculation
from edge.service.ollama import vectors
from edge.service.outcome import OUTCOMES
from edge.service.reporting import Outcome as BeatOutcome
from edge.service.surface import OLLAMA_ROUTES
from edge.service.thermal.panel import SensorState
from router.audit_commands import Outcome as RequestOutcome
from router.dispatch.verdict import Outcome as AttemptOutcome
from router.policy.model import Reason, Rejection
from router.privacy.classify import CAUSES
from router.privacy.recognisers import built_in
from shared.fleet import BackendState, Breaker, ThermalLevel, Zone
from shared.openai.facts import Endpoint
from shared.privacy import PrivacyClass

Values = Iterable[str]
_TIERS = tuple(dict.fromkeys(zone.tier for zone in Zone))
_SPANS = {"outcome": ("exported", "queue_full", "export_failed", "shutdown")}
_KINDS = (*sorted({each.kind for each in built_in()}), "and the kinds of your own patterns")
_EDGE_ROUTES = (Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.EMBEDDINGS)
_DIGEST = ("the digest of a policy",)

VALUES: Mapping[str, Mapping[str, Values]] = {
    "isthmus_router_requests": {"route": Endpoint, "outcome": RequestOutcome},
    "isthmus_router_decisions": {"privacy_class": PrivacyClass, "tier": (*_TIERS, "none"), "reason": Reason},
    "isthmus_router_rejections": {"reason": Rejection},
    "isthmus_router_attempts": {"tier": _TIERS, "outcome": AttemptOutcome},
    "isthmus_router_scanner_errors": {"cause": CAUSES},
    "isthmus_router_answer_findings": {"kind": _KINDS},
    "isthmus_router_ttft_seconds": {"tier": _TIERS},
    "isthmus_router_ttft_predicted_seconds": {"tier": _TIERS},
    "isthmus_router_policy_info": {"digest": _DIGEST},
    "isthmus_router_policy_reloads": {"outcome": ("applied", "unchanged", "refused")},
    "isthmus_router_backends": {"zone": Zone, "state": BackendState},
    "isthmus_router_breakers": {"state": Breaker},
    "isthmus_router_trace_spans": _SPANS,
    "isthmus_edge_requests": {
        "route": (*_EDGE_ROUTES, *OLLAMA_ROUTES, vectors.EMBED, vectors.LEGACY), "outcome": OUTCOMES,
    },
    "isthmus_edge_slots": {"state": ("busy", "free")},
    "isthmus_edge_engine_restarts": {"reason": ("exit",)},
    "isthmus_edge_heartbeats": {"outcome": BeatOutcome},
    "isthmus_edge_adapter_loads": {"outcome": ("loaded", "failed")},
    "isthmus_edge_speculation": {"mode": speculation.SpeculationMode, "reason": speculation.Reason},
    "isthmus_edge_thermal_level": {"level": ThermalLevel},
    "isthmus_edge_sensors": {"state": SensorState},
    "isthmus_edge_trace_spans": _SPANS,
}  # fmt: skip
"""By the name of the family, without `_total`."""


def values_of(family: str, labels: Iterable[str]) -> list[tuple[str, list[str]]]:
    """The values of each label of a metric.

    Raises:
        KeyError: a label has no closed set here, or a set names a label that is gone.
    """
    known = VALUES.get(family, {})
    if differing := set(labels) ^ set(known):
        raise KeyError(f"docs/generator/labels.py and {family} differ: {', '.join(sorted(differing))}")
    return [(label, [str(value) for value in known[label]]) for label in labels]
