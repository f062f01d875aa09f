"""Classifies one parsed request and decides it: the part of its way that `explain` shares with serving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from router.fleet.directory import FleetDirectory
from router.http.headers import Asked
from router.http.measure import text_bytes
from router.policy.decision import decide
from router.policy.model import Decision, DecisionFacts, Policy
from router.privacy.classify import Classifier
from router.privacy.model import Classification
from router.privacy.override import effective_class, is_loosening
from shared.clock import Clock
from shared.fleet import FleetSnapshot
from shared.keys import ApiKey, Scope, require
from shared.openai.facts import Endpoint, facts_of
from shared.privacy import PrivacyClass


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision and what it rests on."""

    facts: DecisionFacts
    fleet: FleetSnapshot
    decision: Decision


class Judge:
    """Holds what every decision needs: scanner, policy, fleet, aliases."""

    def __init__(
        self,
        classifier: Classifier,
        policy: Policy,
        directory: FleetDirectory,
        clock: Clock,
        *,
        aliases: Mapping[str, str],
    ) -> None:
        self._classifier = classifier
        self._policy = policy
        self._directory = directory
        self._clock = clock
        self._aliases = dict(aliases)

    async def classify(self, body: dict[str, Any], raw: bytes) -> Classification:
        """The scanner's conclusion over the whole body; never raises for a scanner's fault."""
        return await self._classifier.classify(body, size_bytes=len(raw))

    def effective(self, found: Classification, asked: Asked, key: ApiKey | None) -> PrivacyClass:
        """The class that counts.

        Raises:
            Forbidden: the caller asks for less protection than was found, without the scope for it.
        """
        if is_loosening(found.privacy_class, asked.privacy):
            require(key, Scope.PRIVACY_OVERRIDE)
        return effective_class(found.privacy_class, asked.privacy, may_loosen=True)

    def model_of(self, body: dict[str, Any]) -> str:
        """The model that is meant, aliases resolved."""
        model: str = body["model"]
        return self._aliases.get(model, model)

    def decide(
        self, endpoint: Endpoint, body: dict[str, Any], asked: Asked, found: Classification, effective: PrivacyClass
    ) -> Judged:
        """The decision for the fleet as it is now."""
        model = self.model_of(body)
        named = body if model == body["model"] else {**body, "model": model}
        facts = DecisionFacts(
            request=facts_of(endpoint, named, text_bytes=text_bytes(body)),
            privacy_class=effective,
            entity_kinds=found.kinds,
            route=asked.route,
        )
        fleet = self._directory.snapshot()
        return Judged(facts, fleet, decide(facts, fleet, self._policy, self._clock.now_ms()))
