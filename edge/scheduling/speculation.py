"""Decides whether a draft may speak for a target at all, and whether speculation pays on this device now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from shared.fleet import ThermalLevel


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What token ids mean: how many there are, a hash over their texts in order, and the special ones."""

    tokens: int
    tokens_sha256: str
    special_ids: Mapping[str, int]


class Mismatch(StrEnum):
    """Why two vocabularies differ. As a metric's reason all of them are `vocab_mismatch`."""

    SIZE = "size"
    TEXT = "text"
    SPECIAL_IDS = "special_ids"


def vocabulary_mismatch(target: Vocabulary, draft: Vocabulary) -> Mismatch | None:
    """The first difference, or None where every id means the same to both.

    A draft proposes ids; where one means another text to the target, what is accepted turns to garbage silently.
    """
    if target.tokens != draft.tokens:
        return Mismatch.SIZE
    if target.tokens_sha256 != draft.tokens_sha256:
        return Mismatch.TEXT
    if dict(target.special_ids) != dict(draft.special_ids):
        return Mismatch.SPECIAL_IDS
    return None


class Reason(StrEnum):
    """Why speculation is on or off."""

    GAIN = "gain"
    NO_GAIN = "no_gain"
    NOT_MEASURED = "not_measured"
    VOCAB_MISMATCH = "vocab_mismatch"
    THERMAL = "thermal"
    DWELL = "dwell"


@dataclass(frozen=True, slots=True)
class SpeculationPolicy:
    """Speculation must beat plain decoding by `margin_ratio`; it changes at most once per `dwell_ms`."""

    margin_ratio: float = 0.05
    dwell_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class SpeculationFacts:
    """What is known at one instant. Rates are measured tokens per second, None where not measured yet."""

    on: bool
    changed_ms: int | None
    level: ThermalLevel
    mismatch: Mismatch | None = None
    plain_tokens_per_s: float | None = None
    speculative_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class SpeculationDecision:
    """Whether speculation should run, and why."""

    on: bool
    reason: Reason


def decide_speculation(facts: SpeculationFacts, policy: SpeculationPolicy, now_ms: int) -> SpeculationDecision:
    """On only where it is safe, cool and measurably faster. Safety and heat do not wait for the dwell time."""
    if facts.mismatch is not None:
        return SpeculationDecision(False, Reason.VOCAB_MISMATCH)
    if facts.level is not ThermalLevel.NOMINAL:
        return SpeculationDecision(False, Reason.THERMAL)
    if facts.changed_ms is not None and now_ms - facts.changed_ms < policy.dwell_ms:
        return SpeculationDecision(facts.on, Reason.DWELL)
    if facts.plain_tokens_per_s is None or facts.speculative_tokens_per_s is None:
        return SpeculationDecision(False, Reason.NOT_MEASURED)
    pays = facts.speculative_tokens_per_s >= facts.plain_tokens_per_s * (1 + policy.margin_ratio)
    return SpeculationDecision(pays, Reason.GAIN if pays else Reason.NO_GAIN)
