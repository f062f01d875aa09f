"""Puts simulated requests to the router's own `decide`: no rule of it is written down here a second time.

A decision is a pure function, so that each situation is decided once and remembered. Figures are rounded first, as
reports in the field are: what is decided on is off by 12 % at most, what then happens is not rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadtests.simulation.devices import Floats, Ints
from router.policy.decision import decide
from router.policy.model import DecisionFacts, Policy, Reason
from shared.fleet import BackendSnapshot, BackendState, FleetSnapshot, Incumbent, ServedModel, ThermalLevel, Zone
from shared.openai.facts import Endpoint, RequestFacts
from shared.privacy import PrivacyClass

NOBODY, EDGE, CLOUD = range(3)
QUEUE_LIMIT = 8
"""Requests that may wait for a slot of a device, unless a plan says otherwise."""
_MODEL = "small"
_STEP_RATIO = 1.25
"""Ratio of two neighbours on the grid of rounded figures: none is off by more than 12 %."""
_GRID = tuple(_STEP_RATIO**place for place in range(64))
_NOW_MS = 1_000_000_000
_CLASSES = (PrivacyClass.PUBLIC, PrivacyClass.PERSONAL, PrivacyClass.UNKNOWN)
_LEVELS = (
    ThermalLevel.NOMINAL,
    ThermalLevel.WARM,
    ThermalLevel.HOT,
    ThermalLevel.CRITICAL,
    ThermalLevel.UNKNOWN,
)
REASONS = tuple(Reason)
_ROUNDED = {
    "prefill_tokens_per_s": 6,
    "decode_tokens_per_s": 6,
    "prompt_tokens": 6,
    "output_tokens": 6,
    "cloud_ttft_ms": 6,
    "cloud_tpot_ms": 6,
}
_COUNTED = {"level": 3, "slots": 4, "open": 6, "privacy": 2, "incumbent": 2, "held": 1}
"""What makes a situation, and how many bits of its key each takes."""
_SERVED = (ServedModel(model_id=_MODEL, context_tokens=8_192),)


@dataclass(frozen=True, slots=True)
class Situations:
    """Requests and what their routers see, one row each. `held` says that the tier in use was taken less than the
    policy's dwell time ago."""

    prefill_tokens_per_s: Floats
    decode_tokens_per_s: Floats
    level: Ints
    slots: Ints
    open: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    privacy: Ints
    cloud_ttft_ms: Floats
    cloud_tpot_ms: Floats
    incumbent: Ints
    held: Ints


@dataclass(frozen=True, slots=True)
class Choices:
    """First and second candidate of each request (`NOBODY` where there is none); the reason is a place in `REASONS`."""

    first: Ints
    second: Ints
    reason: Ints


class Decider:
    """One policy, and what it decided before."""

    def __init__(self, policy: Policy, queue_limit: int = QUEUE_LIMIT) -> None:
        self.policy = policy
        self._queue_limit = queue_limit
        self.decided = 0
        """Calls of `decide`."""
        self._known: dict[int, tuple[int, int, int]] = {}

    def choose(self, asked: Situations) -> Choices:
        """The choice for each row."""
        seen = {name: _places(np.asarray(getattr(asked, name))) for name in _ROUNDED}
        seen |= {name: np.asarray(getattr(asked, name), dtype=np.int64) for name in _COUNTED}
        keys = np.zeros(len(asked.level), dtype=np.int64)
        for name, bits in (_ROUNDED | _COUNTED).items():
            keys = (keys << bits) | np.minimum(seen[name], (1 << bits) - 1)
        unique, first_row, back = np.unique(keys, return_index=True, return_inverse=True)
        found = np.empty((len(unique), 3), dtype=np.int64)
        for place, key in enumerate(unique.tolist()):
            known = self._known.get(key)
            if known is None:
                row = int(first_row[place])
                known = self._known[key] = self._decide({name: int(column[row]) for name, column in seen.items()})
            found[place] = known
        chosen = found[back]
        return Choices(chosen[:, 0], chosen[:, 1], chosen[:, 2])

    def _decide(self, seen: dict[str, int]) -> tuple[int, int, int]:
        """Put one situation to the policy; rounded figures come as places on the grid."""
        self.decided += 1
        fleet = FleetSnapshot((_device(seen, self._queue_limit), _cloud(seen)), _NOW_MS, self._incumbent(seen))
        facts = DecisionFacts(
            RequestFacts(
                Endpoint.CHAT,
                _MODEL,
                stream=True,
                prompt_tokens_estimate=round(_GRID[seen["prompt_tokens"]]),
                max_tokens=round(_GRID[seen["output_tokens"]]),
                features=frozenset(),
            ),
            _CLASSES[seen["privacy"]],
            frozenset(),
        )
        decision = decide(facts, fleet, self.policy, _NOW_MS)
        tiers = [EDGE if candidate.zone is Zone.DEVICE else CLOUD for candidate in decision.candidates]
        first, second = (*tiers, NOBODY, NOBODY)[:2]
        return first, second, REASONS.index(decision.reason)

    def _incumbent(self, seen: dict[str, int]) -> Incumbent | None:
        if seen["incumbent"] == NOBODY:
            return None
        since_ms = _NOW_MS if seen["held"] else _NOW_MS - self.policy.dwell_ms
        return Incumbent("edge" if seen["incumbent"] == EDGE else "cloud", since_ms)


def _device(seen: dict[str, int], queue_limit: int) -> BackendSnapshot:
    slots, opened = seen["slots"], seen["open"]
    return BackendSnapshot(
        backend_id="device",
        zone=Zone.DEVICE,
        url="http://device",
        state=BackendState.READY,
        models=_SERVED,
        received_ms=_NOW_MS,
        level=_LEVELS[seen["level"]],
        slots_total=slots,
        slots_busy=min(slots, opened),
        queued=max(0, opened - slots),
        queue_limit=queue_limit,
        prefill_tokens_per_s=_GRID[seen["prefill_tokens_per_s"]],
        decode_tokens_per_s=_GRID[seen["decode_tokens_per_s"]],
    )


def _cloud(seen: dict[str, int]) -> BackendSnapshot:
    return BackendSnapshot(
        backend_id="cloud",
        zone=Zone.CLOUD,
        url="https://cloud",
        state=BackendState.READY,
        models=_SERVED,
        received_ms=None,
        ttft_ms=_GRID[seen["cloud_ttft_ms"]],
        decode_tokens_per_s=1000.0 / _GRID[seen["cloud_tpot_ms"]],
    )


def _places(values: Floats | Ints) -> Ints:
    """The nearest places on the grid of equal ratios; what lies beyond its ends is at the end."""
    places = np.round(np.log(np.maximum(values, 1.0)) / np.log(_STEP_RATIO))
    bounded: Ints = np.minimum(places, len(_GRID) - 1).astype(np.int64)
    return bounded
