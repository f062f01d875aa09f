"""The permit without which no byte goes to the cloud: minted from a finished classification and a decision for it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NoReturn, final

from router.policy.model import Decision
from router.privacy.model import Classification
from shared.errors import PrivacyUnavailable
from shared.fleet import Zone
from shared.privacy import Action, PrivacyClass

_SEAL: Final = object()
"""Known to `mint` alone: whoever calls the constructor without it is refused."""


def body_digest(body: bytes) -> str:
    """Hex SHA-256 of exactly the bytes that would be sent."""
    return hashlib.sha256(body).hexdigest()


@final
class EgressPermit:
    """Leave to send one body, known by its digest, to the cloud. Frozen; cannot be copied, pickled or subclassed."""

    __slots__ = ("action", "body_digest", "decision_id", "privacy_class")

    decision_id: str
    privacy_class: PrivacyClass
    action: Action
    body_digest: str

    def __init__(
        self, seal: object, *, decision_id: str, privacy_class: PrivacyClass, action: Action, body_digest: str
    ) -> None:
        if seal is not _SEAL:
            raise PrivacyUnavailable("An egress permit is given by a decision alone.").for_good()
        object.__setattr__(self, "decision_id", decision_id)
        object.__setattr__(self, "privacy_class", privacy_class)
        object.__setattr__(self, "action", action)
        object.__setattr__(self, "body_digest", body_digest)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("an egress permit does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an egress permit does not change")

    def __init_subclass__(cls, **kwargs: object) -> NoReturn:
        raise TypeError("an egress permit cannot be subclassed")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an egress permit cannot be copied or sent to another process")

    def covers(self, body: bytes) -> bool:
        """Whether `body` is, byte for byte, what this permit was given for."""
        return hmac.compare_digest(self.body_digest, body_digest(body))


def mint(decision: Decision, classification: Classification, body_digest: str, decision_id: str) -> EgressPermit:
    """The permit for the body with that digest; `classification` is the conclusion over the body as it travels.

    Raises:
        PrivacyUnavailable: the scan did not finish, the action does not let the body travel, something is left in
            a body that was to be masked, or the cloud is not among the zones of the decision.
    """
    if not classification.complete or decision.privacy_class is PrivacyClass.UNKNOWN:
        raise PrivacyUnavailable("This content was not scanned as a whole and stays on the edge.")
    if decision.action not in (Action.ANY, Action.MASK) or Zone.CLOUD not in decision.allowed_zones:
        raise PrivacyUnavailable("Policy does not let this content leave the edge.").for_good()
    if decision.action is Action.MASK and classification.privacy_class is not PrivacyClass.PUBLIC:
        raise PrivacyUnavailable("This content could not be masked and stays on the edge.").for_good()
    return EgressPermit(
        _SEAL,
        decision_id=decision_id,
        privacy_class=decision.privacy_class,
        action=decision.action,
        body_digest=body_digest,
    )
