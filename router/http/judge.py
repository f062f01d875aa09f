"""Classifies one parsed request and decides it: the part of its way that `explain` shares with serving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from router.fleet.directory import FleetDirectory
from router.http.headers import Asked
from router.http.measure import text_bytes
from router.policy.decision import decide
from router.policy.model import Decision, DecisionFacts, Policy
from router.privacy.classify import Classifier
from router.privacy.masking import MaskedBody, Masker
from router.privacy.model import Classification
from router.privacy.override import effective_class, is_loosening
from router.privacy.placeholders import Placeholders
from shared.clock import Clock
from shared.fleet import FleetSnapshot, Zone
from shared.keys import ApiKey, Scope, require
from shared.openai.facts import Endpoint, facts_of
from shared.privacy import Action, PrivacyClass, is_stricter, strictest


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision and what it rests on."""

    facts: DecisionFacts
    fleet: FleetSnapshot
    decision: Decision
    masked: MaskedBody | None = None


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
        self._masker = Masker(classifier)
        self._policy = policy
        self._directory = directory
        self._clock = clock
        self._aliases = dict(aliases)

    async def classify(self, body: dict[str, Any], raw: bytes) -> Classification:
        """The scanner's conclusion over the whole body; never raises for a scanner's fault."""
        return await self._classifier.classify(body, size_bytes=len(raw))

    def effective(self, found: Classification, asked: Asked, key: ApiKey | None, *, pin: PrivacyClass) -> PrivacyClass:
        """The class that counts; `pin` is the strictest that its session had before.

        Raises:
            Forbidden: the caller asks for less protection than was found, without the scope for it.
        """
        least = strictest(found.privacy_class, pin)
        if is_loosening(least, asked.privacy):
            require(key, Scope.PRIVACY_OVERRIDE)
        return effective_class(least, asked.privacy, may_loosen=True)

    def model_of(self, body: dict[str, Any]) -> str:
        """The model that is meant, aliases resolved."""
        model: str = body["model"]
        return self._aliases.get(model, model)

    async def decide(
        self,
        endpoint: Endpoint,
        body: dict[str, Any],
        asked: Asked,
        found: Classification,
        effective: PrivacyClass,
        placeholders: Placeholders,
    ) -> Judged:
        """The decision for the fleet as it is now, and the masked body where a cloud may get one. What cannot be
        masked as a whole is decided once more, without masking."""
        model = self.model_of(body)
        named = body if model == body["model"] else {**body, "model": model}
        facts = DecisionFacts(
            request=facts_of(endpoint, named, text_bytes=text_bytes(body)),
            privacy_class=effective,
            entity_kinds=found.kinds,
            route=asked.route,
            # What a caller calls stricter than the scanner does holds something that no mask knows of.
            maskable=not is_stricter(effective, found.privacy_class),
        )
        judged = self._judged(facts)
        if judged.decision.action is not Action.MASK or not _reaches_cloud(judged.decision):
            return judged
        masked = await self._masker.mask(endpoint, named, placeholders)
        return replace(judged, masked=masked) if masked else self._judged(replace(facts, maskable=False))

    def _judged(self, facts: DecisionFacts) -> Judged:
        fleet = self._directory.snapshot()
        return Judged(facts, fleet, decide(facts, fleet, self._policy, self._clock.now_ms()))


def _reaches_cloud(decision: Decision) -> bool:
    return any(candidate.zone is Zone.CLOUD for candidate in decision.candidates)
