"""The cloud of a simulated fleet: replicas that follow the load late, a backlog where they do not suffice, a price."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadtests.simulation.devices import Floats


@dataclass(frozen=True, slots=True)
class CloudModel:
    """What a replica does and costs. Speeds are tokens a second, money is in any one currency."""

    streams_per_replica: int = 32
    prefill_tokens_per_s: float = 8_000.0
    decode_tokens_per_s: float = 45.0
    base_ms: float = 90.0
    """From the ingress to the first token of an empty prompt."""
    full_slowdown: float = 0.5
    """How much longer a token takes in a full batch than in an empty one."""
    full_first_slowdown: float = 0.0
    """The same of the first token."""
    least_replicas: int = 1
    most_replicas: int = 400
    target_ratio: float = 0.7
    """Share of the streams that the autoscaler aims at."""
    start_s: float = 180.0
    """How long a replica takes until it serves."""
    stop_after_s: float = 600.0
    """How long too many replicas are kept."""
    replica_money_per_h: float = 2.2
    """An accelerator of the size that serves so many streams of a model of eight billion parameters."""


class Cloud:
    """The cloud at one moment of the day."""

    def __init__(self, model: CloudModel) -> None:
        self.model = model
        self.replicas = model.least_replicas
        self.replica_s = 0.0
        self.peak_replicas = self.replicas
        self._starting: list[tuple[float, int]] = []
        self._idle_since_s: float | None = None
        self._left_s: Floats = np.empty(0)
        """Seconds that each open request still takes."""
        self._wait_ms = 0.0
        self._busy_ratio = 0.0

    @property
    def wait_ms(self) -> float:
        """How long a request waits for a free stream now."""
        return self._wait_ms

    @property
    def busy_ratio(self) -> float:
        """Share of the streams that were in use during the last step."""
        return self._busy_ratio

    @property
    def streams(self) -> int:
        """Requests that are served at the same time."""
        return self.replicas * self.model.streams_per_replica

    def first_ms(self, prompt_tokens: Floats) -> Floats:
        """From arrival at the ingress to the first token, by prompt."""
        alone_ms = self.model.base_ms + prompt_tokens * 1000.0 / self.model.prefill_tokens_per_s
        return self._wait_ms + alone_ms * (1.0 + self.model.full_first_slowdown * self._busy_ratio)

    @property
    def tpot_ms(self) -> float:
        """Milliseconds per output token, by how full the batches are."""
        return 1000.0 / self.model.decode_tokens_per_s * (1.0 + self.model.full_slowdown * self._busy_ratio)

    def step(self, services_s: Floats, now_s: float, dt_s: float) -> None:
        """Let `dt_s` seconds end in which requests arrived that take `services_s` seconds each.

        All streams go on side by side; where there are more requests than streams, each gets its share, and a new one
        waits until as many are done as there are too many.
        """
        left = np.concatenate([self._left_s, services_s])
        wanted_s = float(np.minimum(left, dt_s).sum())
        room_s = max(1e-9, self.streams * dt_s)
        self._busy_ratio = min(1.0, wanted_s / room_s)
        left = left - np.minimum(left, dt_s) * min(1.0, room_s / max(wanted_s, 1e-9))
        self._left_s = left[left > 1e-6]
        too_many = max(0, len(self._left_s) - self.streams)
        self._wait_ms = 1000.0 * too_many * float(self._left_s.mean()) / max(1, self.streams) if too_many else 0.0
        self.replica_s += self.replicas * dt_s
        self._scale(wanted_s / dt_s, now_s)

    def _scale(self, wanted_streams: float, now_s: float) -> None:
        model = self.model
        ready = sum(count for at_s, count in self._starting if at_s <= now_s)
        self._starting = [each for each in self._starting if each[0] > now_s]
        self.replicas += ready
        wanted = -(-int(wanted_streams / model.target_ratio) // model.streams_per_replica)
        wanted = min(model.most_replicas, max(model.least_replicas, wanted))
        coming = self.replicas + sum(count for _, count in self._starting)
        if wanted > coming:
            self._starting.append((now_s + model.start_s, wanted - coming))
            self._idle_since_s = None
        elif wanted < self.replicas:
            self._idle_since_s = now_s if self._idle_since_s is None else self._idle_since_s
            if now_s - self._idle_since_s >= model.stop_after_s:
                self.replicas, self._idle_since_s = wanted, None
        else:
            self._idle_since_s = None
        self.peak_replicas = max(self.peak_replicas, self.replicas)
