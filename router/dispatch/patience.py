"""Decides how long the first content of a stream is waited for, at a backend that is slow as foreseen or at any other.

One limit for all would cut off a small device in the middle of each long prompt, although it works and the decision
knew how long it takes. So an agent that reports itself gets some times what was predicted for it, while it reports: the
moment its reports are stale, whatever is waited for there beyond the plain limit is given up. A backend that nobody
hears from has the plain limit, since nothing would tell a slow one from a frozen one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from router.policy.model import Candidate
from shared.clock import Clock
from shared.fleet import Zone


@dataclass(frozen=True, slots=True)
class PatienceRules:
    """`plain_s` is for every backend; an agent gets `ratio` times what was predicted for it where that is more, and
    `most_s` at most."""

    plain_s: float
    ratio: float
    most_s: float

    def limit_s(self, candidate: Candidate) -> float:
        """Longest wait for a first token: finite, and no shorter for a longer prediction."""
        predicted_ms = candidate.predicted_ttft_ms
        if predicted_ms is None or candidate.zone is Zone.CLOUD:
            return self.plain_s
        # In this order a figure that is none gives the bound.
        return max(self.plain_s, min(self.most_s, predicted_ms / 1000 * self.ratio))


class Patience:
    """The rules, and what is heard of agents meanwhile."""

    def __init__(
        self,
        rules: PatienceRules,
        clock: Clock,
        *,
        heard_ms: Callable[[str], int | None],
        stale_after_ms: Callable[[], int],
    ) -> None:
        """`heard_ms` says when a backend reported last (None: it does not), `stale_after_ms` when that is too old."""
        self._rules = rules
        self._clock = clock
        self._heard_ms = heard_ms
        self._stale_after_ms = stale_after_ms

    def left_s(self, candidate: Candidate, waited_s: float) -> float:
        """Seconds until this is to be asked again, after waiting for `waited_s`; 0: it was long enough."""
        if waited_s < self._rules.plain_s:
            return self._rules.plain_s - waited_s
        left_s = self._rules.limit_s(candidate) - waited_s
        heard_ms = self._heard_ms(candidate.backend_id)
        if left_s <= 0 or heard_ms is None:
            return 0.0
        silent_in_s = (heard_ms + self._stale_after_ms() - self._clock.now_ms()) / 1000
        return max(0.0, min(left_s, silent_in_s))
