"""What a scan concludes: class, kinds and places, never the values that were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from shared.privacy import PrivacyClass


@dataclass(frozen=True, slots=True)
class Entity:
    """One finding: its kind (`card`, `iban`, …), where the text stands in the body, the character span `[start, end)`
    in that text as it was sent, and how sure the recogniser is (0 to 1). The matched value is not kept. `is_cut` says
    that it goes over several texts: a mask over one of them would leave the rest."""

    kind: str
    position: str
    start: int
    end: int
    score: float = 1.0
    is_cut: bool = False


class Classification(NamedTuple):
    """The conclusion over a whole body. `complete` is False when some part could not be scanned; the class is
    then `unknown` and `cause` names why (a closed set: error, timeout, overflow, undecodable)."""

    privacy_class: PrivacyClass
    entities: tuple[Entity, ...]
    complete: bool
    cause: str | None = None

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that were found."""
        return frozenset([entity.kind for entity in self.entities])
