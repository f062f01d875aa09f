"""Adds up what a policy did to a simulated day."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadtests.simulation.deciding import CLOUD, EDGE, NOBODY, REASONS
from loadtests.simulation.devices import Flags, Floats, Ints
from loadtests.simulation.requests import PERSONAL, PUBLIC, UNKNOWN
from shared.fleet import PROMPT_BUCKETS_TOKENS

_PERCENTS = (50, 95, 99)
_SLO_TTFT_MS, _SLO_TPOT_MS = 2_000.0, 150.0
"""What users of every policy are measured by, whatever the policy itself aims at."""


@dataclass(slots=True)
class Tally:
    """Outcomes of all requests so far."""

    ttft_ms: list[Floats] = field(default_factory=list)
    total_ms: list[Floats] = field(default_factory=list)
    prompt_tokens: list[Ints] = field(default_factory=list)
    by_class: Any = field(default_factory=lambda: np.zeros((3, 3), dtype=np.int64))
    """Requests by privacy class and by who answered."""
    reasons: Any = field(default_factory=lambda: np.zeros(len(REASONS), dtype=np.int64))
    within: int = 0
    failed_over: int = 0
    switches: int = 0
    cloud_tokens: int = 0
    edge_tokens: int = 0
    edge_joules: float = 0.0
    outcomes: list[tuple[Floats, Ints, Floats]] | None = None
    """Moment, who answered and time to the first token of every request, where they are wanted one by one."""

    def add(
        self,
        *,
        at_s: Floats,
        who: Ints,
        privacy: Ints,
        reason: Ints,
        prompt: Ints,
        output: Ints,
        ttft: Floats,
        tpot: Floats,
    ) -> None:
        """Requests that ended, or were refused (`who` is `NOBODY`)."""
        if self.outcomes is not None:
            self.outcomes.append((at_s, who, ttft))
        np.add.at(self.by_class, (privacy, who), 1)
        np.add.at(self.reasons, reason, 1)
        served: Flags = who != NOBODY
        self.ttft_ms.append(ttft[served])
        self.total_ms.append((ttft + tpot * output)[served])
        self.prompt_tokens.append(prompt[served])
        self.within += int((served & (ttft <= _SLO_TTFT_MS) & (tpot <= _SLO_TPOT_MS)).sum())
        tokens = prompt + output
        self.cloud_tokens += int(tokens[who == CLOUD].sum())
        self.edge_tokens += int(tokens[who == EDGE].sum())

    def result(self) -> dict[str, Any]:
        """The figures as plain data."""
        requests = int(self.by_class.sum())
        by_tier = self.by_class.sum(axis=0)
        served = int(by_tier[EDGE] + by_tier[CLOUD])
        ttft = np.concatenate(self.ttft_ms) if self.ttft_ms else np.empty(0)
        total = np.concatenate(self.total_ms) if self.total_ms else np.empty(0)
        private = self.by_class[PERSONAL] + self.by_class[UNKNOWN]
        return {
            "requests": requests,
            "edge_share": _share(int(by_tier[EDGE]), served),
            "refused_share": _share(int(by_tier[NOBODY]), requests),
            "within_objective_share": _share(self.within, requests),
            "ttft_ms": _points(ttft),
            "total_ms": _points(total),
            "ttft_ms_by_prompt": self._by_prompt(ttft),
            "privacy": {
                "kept_on_edge": int(private[EDGE]),
                "refused": int(private[NOBODY]),
                "sent_to_cloud": int(private[CLOUD]),
                "public_to_cloud": int(self.by_class[PUBLIC][CLOUD]),
            },
            "failed_over": self.failed_over,
            "tier_switches": self.switches,
            "cloud_tokens": self.cloud_tokens,
            "edge_tokens": self.edge_tokens,
            "edge_kwh": round(self.edge_joules / 3.6e6, 2),
            "edge_joules_per_token": round(self.edge_joules / self.edge_tokens, 3) if self.edge_tokens else None,
            "reasons": {str(REASONS[at]): int(count) for at, count in enumerate(self.reasons) if count},
        }

    def _by_prompt(self, ttft: Floats) -> dict[str, dict[str, float | None]]:
        prompts = np.concatenate(self.prompt_tokens) if self.prompt_tokens else np.empty(0, dtype=np.int64)
        bucket = np.searchsorted(PROMPT_BUCKETS_TOKENS, prompts)
        names = [f"up to {most}" for most in PROMPT_BUCKETS_TOKENS] + ["above"]
        return {name: _points(ttft[bucket == at]) for at, name in enumerate(names) if (bucket == at).any()}


def _points(values: Floats) -> dict[str, float | None]:
    if not values.size:
        return {f"p{percent}": None for percent in _PERCENTS}
    found = np.percentile(values, _PERCENTS, method="inverted_cdf")
    return {f"p{percent}": round(float(value), 1) for percent, value in zip(_PERCENTS, found, strict=True)}


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
