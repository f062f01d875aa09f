"""Plays one day of a fleet under one policy: requests, decisions, queues, heat, batteries, cloud, step by step.

Within a step, the first requests of all devices are decided together, then their second ones, and so on: each sees the
queue that the earlier ones left. Devices cool and heat at the end of a step, and the cloud scales then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadtests.simulation.cloud import Cloud, CloudModel
from loadtests.simulation.deciding import CLOUD, EDGE, NOBODY, QUEUE_LIMIT, Choices, Decider, Situations
from loadtests.simulation.devices import CLASSES, SPEED_AT_LEVEL, DeviceClass, Fleet, Floats, Ints, new_fleet, step
from loadtests.simulation.requests import PUBLIC, Asks, asks_of_step
from loadtests.simulation.tally import Tally
from router.policy.model import Policy

_SHARED_SLOWDOWN = 0.25
"""How much slower each answer gets with every other one on the same device."""
_RETRY_MS = 400.0
"""What a connection that fails costs before the next candidate is asked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated; the same seed gives every policy the same devices and requests."""

    devices: int = 10_000
    hours: float = 24.0
    step_s: float = 60.0
    per_day: float = 20.0
    """Requests of a device and day, on average."""
    seed: int = 1
    classes: tuple[DeviceClass, ...] = CLASSES
    cloud: CloudModel = field(default_factory=CloudModel)
    queue_limit: int = QUEUE_LIMIT
    spread_ratio: float = 0.15
    """How much the devices of one class differ."""
    asks: Asks | None = None
    """Requests that were recorded somewhere; None: drawn."""


class Day:
    """One policy's day."""

    def __init__(self, plan: Plan, policy: Policy) -> None:
        self._plan = plan
        self._dice = np.random.default_rng(plan.seed)
        self._fleet: Fleet = new_fleet(plan.devices, plan.classes, self._dice, spread_ratio=plan.spread_ratio)
        most_slots = int(self._fleet.slots.max(initial=1))
        self._ends_s = np.zeros((plan.devices, most_slots + plan.queue_limit))
        """When each open request of a device ends; the past stands for free places."""
        self._pending_s = np.zeros(plan.devices)
        """Slot-seconds of work that were accepted and not yet done."""
        self._incumbent = np.zeros(plan.devices, dtype=np.int64)
        self._since_s = np.full(plan.devices, -np.inf)
        self._cloud = Cloud(plan.cloud)
        self._decider = Decider(policy, plan.queue_limit)
        self._tally = Tally()
        self._services_s: list[Floats] = []
        """How long each of this step's requests to the cloud is served there."""

    def outcomes(self) -> tuple[Floats, Ints, Floats]:
        """The day's requests one by one: moment, who answered, milliseconds to the first token. Plays it."""
        self._tally.outcomes = []
        self.run()
        at_s, who, ttft = (np.concatenate(column) for column in zip(*self._tally.outcomes, strict=True))
        return at_s, who, ttft

    def run(self) -> dict[str, Any]:
        """Play it and tell what came out."""
        plan = self._plan
        for number in range(round(plan.hours * 3600 / plan.step_s)):
            self._step(number * plan.step_s)
        hours = self._cloud.replica_s / 3600
        return {
            **self._tally.result(),
            "throttle_events": self._fleet.throttle_events,
            "cloud_replica_hours": round(hours, 1),
            "cloud_peak_replicas": self._cloud.peak_replicas,
            "cloud_money": round(hours * plan.cloud.replica_money_per_h, 2),
            "decisions": self._decider.decided,
        }

    def _step(self, from_s: float) -> None:
        plan = self._plan
        asks = self._asks(from_s)
        self._services_s = [np.empty(0)]
        for rows in waves(asks.device):
            self._serve(asks, rows)
        worked_s = np.minimum(self._pending_s, plan.step_s * self._fleet.slots)
        self._pending_s -= worked_s
        joules = step(self._fleet, worked_s, from_s, plan.step_s)
        self._tally.edge_joules += float(joules.sum())
        self._cloud.step(np.concatenate(self._services_s), from_s + plan.step_s, plan.step_s)

    def _asks(self, from_s: float) -> Asks:
        plan = self._plan
        if plan.asks is not None:
            return plan.asks.within(from_s, from_s + plan.step_s)
        return asks_of_step(from_s, plan.step_s, devices=plan.devices, per_day=plan.per_day, dice=self._dice)

    def _serve(self, asks: Asks, rows: Ints) -> None:
        """Decide and serve requests of which no two are of one device."""
        device, at_s, privacy = asks.device[rows], asks.at_s[rows], asks.privacy[rows]
        opened = (self._ends_s[device] > at_s[:, None]).sum(axis=1)
        cloud_first = self._cloud.first_ms(asks.prompt_tokens[rows].astype(np.float64))
        chosen = self._decided(asks, rows, opened, cloud_first)
        lost = (chosen.first == CLOUD) & (asks.luck[rows] < self._fleet.loss_ratio[device])
        who = np.where(lost & (chosen.second != NOBODY), chosen.second, chosen.first)
        self._tally.failed_over += int((who != chosen.first).sum())
        ttft, tpot = self._on_edge(asks, rows, opened)
        cloud_ttft, cloud_tpot, served_s = self._in_cloud(asks, rows, cloud_first)
        in_cloud = who == CLOUD
        ttft = np.where(in_cloud, cloud_ttft, ttft) + np.where(lost, _RETRY_MS, 0.0)
        tpot = np.where(in_cloud, cloud_tpot, tpot)
        self._services_s.append(served_s[in_cloud])
        self._occupy(asks, rows, who == EDGE, ttft, tpot)
        self._note(device, at_s, np.where(privacy == PUBLIC, who, NOBODY))
        self._tally.add(
            at_s=at_s,
            who=who,
            privacy=privacy,
            reason=chosen.reason,
            prompt=asks.prompt_tokens[rows],
            output=asks.output_tokens[rows],
            ttft=ttft,
            tpot=tpot,
        )

    def _decided(self, asks: Asks, rows: Ints, opened: Ints, cloud_first: Floats) -> Choices:
        """What the router of each device chooses, by what it can know."""
        device, fleet = asks.device[rows], self._fleet
        dwell_s = self._decider.policy.dwell_ms / 1000
        return self._decider.choose(
            Situations(
                prefill_tokens_per_s=fleet.prefill_tokens_per_s[device],
                decode_tokens_per_s=fleet.decode_tokens_per_s[device],
                level=fleet.level[device],
                slots=fleet.slots[device],
                open=opened,
                prompt_tokens=asks.guessed_prompt[rows],
                output_tokens=asks.asked_output[rows],
                privacy=asks.privacy[rows],
                cloud_ttft_ms=fleet.network_ms[device] + cloud_first,
                cloud_tpot_ms=np.full(len(rows), self._cloud.tpot_ms),
                incumbent=self._incumbent[device],
                held=(asks.at_s[rows] - self._since_s[device] < dwell_s).astype(np.int64),
            )
        )

    def _in_cloud(self, asks: Asks, rows: Ints, first_ms: Floats) -> tuple[Floats, Floats, Floats]:
        """Milliseconds to the first token and per token, if the cloud served each request now, and for how many seconds
        it would; the round trip and the wait for a stream come before."""
        factor = asks.cloud_factor[rows]
        served_ms = (first_ms - self._cloud.wait_ms) * factor
        way_ms = self._fleet.network_ms[asks.device[rows]] * asks.network_factor[rows]
        tpot = self._cloud.tpot_ms * factor
        served_s = (served_ms + tpot * asks.output_tokens[rows]) / 1000
        return way_ms + self._cloud.wait_ms + served_ms, tpot, served_s

    def _on_edge(self, asks: Asks, rows: Ints, opened: Ints) -> tuple[Floats, Floats]:
        """Milliseconds to the first token and per token, if the device served each request now."""
        device, fleet = asks.device[rows], self._fleet
        speed = SPEED_AT_LEVEL[fleet.level[device]]
        slots = fleet.slots[device]
        others = np.minimum(opened, slots - 1)
        factor = asks.edge_factor[rows]
        tpot = factor * 1000.0 * (1.0 + _SHARED_SLOWDOWN * others) / (fleet.decode_tokens_per_s[device] * speed)
        prefill = 1000.0 * asks.prompt_tokens[rows] / (fleet.prefill_tokens_per_s[device] * speed)
        prefill = factor * (fleet.base_ms[device] + prefill)
        # The request starts when fewer than `slots` are left: at the slots-th last of the ends.
        ordered = np.sort(self._ends_s[device], axis=1)
        place = ordered.shape[1] - slots
        starts_s = np.maximum(asks.at_s[rows], ordered[np.arange(len(rows)), place])
        return prefill + (starts_s - asks.at_s[rows]) * 1000.0, tpot

    def _occupy(self, asks: Asks, rows: Ints, on_edge: Any, ttft: Floats, tpot: Floats) -> None:
        device = asks.device[rows][on_edge]
        lasts_ms = (ttft + tpot * asks.output_tokens[rows])[on_edge]
        oldest = self._ends_s[device].argmin(axis=1)
        self._ends_s[device, oldest] = asks.at_s[rows][on_edge] + lasts_ms / 1000
        speed = SPEED_AT_LEVEL[self._fleet.level[device]]
        prompt_s = asks.prompt_tokens[rows][on_edge] / (self._fleet.prefill_tokens_per_s[device] * speed)
        self._pending_s[device] += prompt_s + (tpot * asks.output_tokens[rows])[on_edge] / 1000

    def _note(self, device: Ints, at_s: Floats, who: Ints) -> None:
        """The tier in use of each router, which free choices alone change."""
        changed = (who != NOBODY) & (who != self._incumbent[device])
        self._tally.switches += int((changed & (self._incumbent[device] != NOBODY)).sum())
        self._incumbent[device[changed]] = who[changed]
        self._since_s[device[changed]] = at_s[changed]


def waves(device: Ints) -> list[Ints]:
    """Rows in groups in which no device comes twice: the first requests of all, the second ones, and so on."""
    order = np.argsort(device, kind="stable")
    ordered = device[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.empty(0, dtype=np.int64)
    turn = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
    return [np.sort(order[turn == number]) for number in range(int(turn.max(initial=-1)) + 1)]
