"""Classifies one parsed request and decides it: the part of its way that `explain` shares with serving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from router.dispatch.rewrite import capped_fields
from router.fleet.directory import FleetDirectory
from router.http import spans
from router.http.headers import Asked
from router.http.measure import text_bytes
from router.policy.decision import decide
from router.policy.model import Decision, DecisionFacts, Policy
from router.privacy.classify import Classifier
from router.privacy.masking import MaskedBody, Masker
from router.privacy.model import Classification
from router.privacy.override import effective_class, is_loosening
from router.privacy.permit import EgressPermit, body_digest, mint
from router.privacy.placeholders import Source
from shared.errors import Forbidden
from shared.fleet import FleetSnapshot, Zone
from shared.keys import ApiKey, Scope, may
from shared.openai.facts import REWRITABLE, Endpoint, facts_of
from shared.privacy import Action, PrivacyClass, is_stricter, strictest
from shared.tracing.port import NO_SPAN, Span


@dataclass(slots=True, eq=False)
class Classified:
    """One accepted request after its scan: what a decision over it takes beside the fleet and the policy.

    Nobody changes it once it is made; that is not enforced, because each request would pay for it."""

    endpoint: Endpoint
    body: dict[str, Any] = field(repr=False)
    asked: Asked
    key: ApiKey | None
    found: Classification
    effective: PrivacyClass
    """The class that counts, which may be another than `found` has."""

    @property
    def is_maskable(self) -> bool:
        """Whether a mask could take out all that makes it what it is: what a caller calls stricter than the scanner
        does holds something that no mask knows of, of what is cut over two texts one piece would be left, and an
        answer whose texts are not read text by text could not get its values back."""
        found = self.found
        if is_stricter(self.effective, found.privacy_class) or any(entity.is_cut for entity in found.entities):
            return False
        return self.endpoint in REWRITABLE


class Judged(NamedTuple):
    """A decision and what it rests on."""

    facts: DecisionFacts
    fleet: FleetSnapshot
    decision: Decision
    now_ms: int
    masked: MaskedBody | None = None

    def is_served(self, model: str) -> bool:
        """Whether some backend knows the model by that name; candidates do, and are looked at first."""
        return bool(self.decision.candidates) or any(b.model(model) is not None for b in self.fleet.backends)


class PolicySource(Protocol):
    """Where the policy in force comes from; it may change between two requests."""

    @property
    def policy(self) -> Policy:
        """The policy in force."""

    def week_minute(self) -> int:
        """Now, as the policy's rules read it."""


class Judge:
    """Holds what every decision needs: scanner, policy, fleet, aliases."""

    def __init__(
        self,
        classifier: Classifier,
        policies: PolicySource,
        directory: FleetDirectory,
        *,
        aliases: Mapping[str, str],
    ) -> None:
        self._classifier = classifier
        self._masker = Masker(classifier)
        self._policies = policies
        self._directory = directory
        self._aliases = dict(aliases)

    async def classify(self, body: dict[str, Any], raw: bytes, span: Span = NO_SPAN) -> Classification:
        """The scanner's conclusion over the whole body; never raises for a scanner's fault."""
        if not span.recording:
            return await self._classifier.classify(body, size_bytes=len(raw), raw=raw)
        with span.child("classify") as part:
            found = await self._classifier.classify(body, size_bytes=len(raw), raw=raw)
            spans.found(part, found)
        return found

    def effective(self, found: Classification, asked: Asked, key: ApiKey | None, *, pin: PrivacyClass) -> PrivacyClass:
        """The class that counts; `pin` is the strictest that its session had before.

        Raises:
            Forbidden: the caller asks for less protection than was found, without the scope for it.
        """
        least = strictest(found.privacy_class, pin)
        if is_loosening(least, asked.privacy) and not may(key, Scope.PRIVACY_OVERRIDE):
            whose = "that its session has had" if is_stricter(pin, found.privacy_class) else "that was found"
            raise Forbidden(
                f"This asks for less protection than the class {whose} ({least}): it needs a key with the scope "
                f"{Scope.PRIVACY_OVERRIDE}."
            )
        return effective_class(least, asked.privacy, may_loosen=True)

    def model_of(self, body: dict[str, Any]) -> str:
        """The model that is meant, aliases resolved."""
        model: str = body["model"]
        return self._aliases.get(model, model)

    async def decide(self, request: Classified, source: Source, span: Span = NO_SPAN) -> Judged:
        """The decision for the fleet as it is now, and the masked body where a cloud may get one. What cannot be
        masked as a whole is decided once more, without masking."""
        if not span.recording:
            return await self._decided(request, source)
        with span.child("decide") as part:
            judged = await self._decided(request, source)
            spans.decided(part, judged.decision)
        return judged

    async def _decided(self, request: Classified, source: Source) -> Judged:
        endpoint, body = request.endpoint, request.body
        model = self.model_of(body)
        named = body if model == body["model"] else {**body, "model": model}
        facts = DecisionFacts(
            request=facts_of(endpoint, named, text_bytes=text_bytes(body)),
            privacy_class=request.effective,
            entity_kinds=request.found.kinds,
            route=request.asked.route,
            key_name=request.key.name if request.key else None,
            week_minute=self._policies.week_minute(),
            maskable=request.is_maskable,
        )
        policy = self._policies.policy
        judged = self._judged(facts, policy)
        if judged.decision.action is not Action.MASK or not _reaches_cloud(judged.decision):
            return judged
        capped = {**named, **capped_fields(endpoint, named, judged.decision.rule_cap_tokens)}
        masked = await self._masker.mask(endpoint, capped, source)
        return judged._replace(masked=masked) if masked else self._judged(facts._replace(maskable=False), policy)

    def _judged(self, facts: DecisionFacts, policy: Policy) -> Judged:
        fleet = self._directory.snapshot()
        decision = decide(facts, fleet, policy, fleet.taken_ms, self._directory.view(fleet))
        return Judged(facts, fleet, decision, fleet.taken_ms)


def permit_of(judged: Judged, found: Classification, travels: bytes, decision_id: str) -> EgressPermit | None:
    """The permit for what would go to a cloud, where the decision has a cloud candidate at all."""
    if not _reaches_cloud(judged.decision):
        return None
    if judged.masked is not None:
        return mint(judged.decision, judged.masked.scan, body_digest(judged.masked.raw), decision_id)
    return mint(judged.decision, found, body_digest(travels), decision_id)


def _reaches_cloud(decision: Decision) -> bool:
    return any(candidate.zone is Zone.CLOUD for candidate in decision.candidates)
