"""Judges whether two greedy answers differ only where the model itself was undecided.

One token alone and the same token in a batch go through other kernels, which round differently; the numerics of this
engine move the log-probability of a token by up to 0.18 (measured). Where the two best tokens lie closer together than
`NEAR_TIE_LOGPROB`, a quantised model may therefore take the other one; anywhere else a difference is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NEAR_TIE_LOGPROB = 0.2


@dataclass(frozen=True, slots=True)
class Step:
    """One token of an answer, and how far the second best lay behind: a difference of log-probabilities."""

    token: str
    gap_logprob: float


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token in which two answers differ; `allowed`: it was a near tie."""

    position: int
    gap_logprob: float

    @property
    def allowed(self) -> bool:
        """Whether the two best were that close."""
        return self.gap_logprob <= NEAR_TIE_LOGPROB


def divergence(plain: Sequence[Step], other: Sequence[str]) -> Divergence | None:
    """Where `other` leaves `plain`; None where both are the same. After that point they are different texts.

    An answer that ends earlier or goes on differs in its end, which no tie excuses.
    """
    for position, (step, token) in enumerate(zip(plain, other, strict=False)):
        if step.token != token:
            return Divergence(position, step.gap_logprob)
    if len(plain) == len(other):
        return None
    return Divergence(min(len(plain), len(other)), float("inf"))
