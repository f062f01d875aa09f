"""Holds the simulator against a real load test: the same requests at the same moments, decided by the same policy.

The first part of the run tells how fast the tiers are, the rest is predicted. What the simulation gets of the rest is
what was asked and when; who answers, how long each waits and what the device and the cloud do to each other's share
must come out of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from loadtests.simulation.day import Day, Plan
from loadtests.simulation.deciding import CLOUD, EDGE
from loadtests.simulation.devices import DeviceClass, Floats
from loadtests.simulation.fitting import CloudFit, EdgeFit, fit_cloud, fit_edge
from loadtests.simulation.requests import PERSONAL, PUBLIC, Asks
from loadtests.summary import percentile, ratio
from loadtests.workload.canaries import marker_of
from loadtests.workload.requests import Workload
from loadtests.workload.scenario import read_scenario
from router.http.measure import text_bytes
from router.policy.model import Policy
from shared.errors import IsthmusError
from shared.openai.facts import Endpoint, facts_of

WITHIN_RATIO = 0.2
"""How far a figure of the simulation may be from the real one."""
_STEP_S = 0.5
_TAIL_S = 600.0
"""The simulation goes on for so long after the last request, so that every one ends."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """One figure, real and simulated; `off_ratio` is the difference as a share of the real one."""

    figure: str
    real: float
    simulated: float

    @property
    def off_ratio(self) -> float:
        """The difference itself where the real one is 0."""
        return abs(self.simulated - self.real) / self.real if self.real else abs(self.simulated)

    @property
    def holds(self) -> bool:
        """Whether it is near enough."""
        return self.off_ratio <= WITHIN_RATIO


@dataclass(frozen=True, slots=True)
class Validation:
    """What came out, and what the tiers were taken for."""

    learnt_from: int
    predicted: int
    edge: EdgeFit
    cloud: CloudFit
    figures: tuple[Held, ...]

    @property
    def holds(self) -> bool:
        """Whether all figures are near enough."""
        return all(each.holds for each in self.figures)


def validate(run: Mapping[str, Any], rows: Sequence[Row], policy: Policy, *, learn_ratio: float = 0.5) -> Validation:
    """Learn from the first `learn_ratio` of the run's time, predict the rest, and compare.

    Raises:
        IsthmusError: the run is no open loop without faults, or has too few answers to learn from.
    """
    _check(run)
    rows = sorted(rows, key=lambda row: row["at_s"])
    border_s = learn_ratio * float(run["duration_s"])
    device = _device_of(run)
    learnt = [row for row in rows if row["at_s"] + row["total_ms"] / 1000 <= border_s and "failure" not in row]
    edge, cloud = fit_edge(learnt, device["slots_total"]), fit_cloud(learnt)
    plan = Plan(
        devices=1,
        hours=(float(run["duration_s"]) + _TAIL_S) / 3600,
        step_s=_STEP_S,
        classes=(_class(edge, device),),
        cloud=cloud.model,
        queue_limit=device["queue_limit"],
        spread_ratio=0.0,
        asks=_asks(run, rows, edge, cloud),
    )
    at_s, who, ttft = Day(plan, policy).outcomes()
    rest = at_s >= border_s
    real = [row for row in rows if row["at_s"] >= border_s and "failure" not in row]
    return Validation(len(learnt), len(real), edge, cloud, _held(real, who[rest], ttft[rest]))


def _held(real: Sequence[Row], who: Any, ttft: Floats) -> tuple[Held, ...]:
    served = (who == EDGE) | (who == CLOUD)
    simulated_ms, real_ms = sorted(ttft[served].tolist()), sorted(row["ttft_ms"] for row in real if "ttft_ms" in row)
    if not simulated_ms or not real_ms:
        raise IsthmusError("Nothing was answered in the part of the run that is to be predicted.")
    share = ratio(sum(row.get("tier") == "edge" for row in real), len(real)) or 0.0
    return (
        Held("edge share", share, round(float((who[served] == EDGE).mean()), 4)),
        Held("ttft_ms p50", round(percentile(real_ms, 50), 1), round(percentile(simulated_ms, 50), 1)),
    )


def _check(run: Mapping[str, Any]) -> None:
    plan = run["plan"]
    if plan["loop"] != "open":
        raise IsthmusError("The run is a closed loop: when its users ask depends on the answers. Use --rate.")
    if plan["faults_asked"] or plan["route"] not in (None, "auto"):
        raise IsthmusError("The run had faults, or asked for one tier: the simulation has neither.")
    if not run["valid"]:
        raise IsthmusError("The run is invalid: its figures say nothing.")


def _device_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Slots, queue and usual level of the one device, from the looks at the fleet."""
    looks = [look for look in run["looks"] if look.get("tier") == "edge" and look.get("slots_total")]
    if len({look["backend_id"] for look in looks}) != 1:
        raise IsthmusError("The run must have looked at exactly one edge device, and at how many slots it has.")
    levels = [look["level"] for look in looks]
    last = looks[-1]
    return {
        "slots_total": int(last["slots_total"]),
        "queue_limit": int(last.get("queue_limit") or 0),
        "level": max(set(levels), key=levels.count),
    }


def _class(edge: EdgeFit, device: Mapping[str, Any]) -> DeviceClass:
    """A device as the real one was: on mains, and cool, or without a sensor."""
    return DeviceClass(
        name="the device of the run",
        share=1.0,
        prefill_tokens_per_s=edge.prefill_tokens_per_s,
        decode_tokens_per_s=edge.decode_tokens_per_s,
        slots=device["slots_total"],
        idle_w=0.0,
        busy_w=0.0,
        rise_c=0.0,
        tau_s=1.0,
        battery_wh=0.0,
        network_ms=0.0,
        loss_ratio=0.0,
        base_ms=edge.base_ms,
        senses=device["level"] != "unknown",
    )


def _asks(run: Mapping[str, Any], rows: Sequence[Row], edge: EdgeFit, cloud: CloudFit) -> Asks:
    """The requests of the run: what the model then said is known, what a router guessed is guessed again."""
    plan = run["plan"]
    workload = Workload(
        read_scenario(plan["scenario"]),
        model=plan["model"],
        marker=marker_of(plan["seed"], plan["run_id"]),
        seed=plan["seed"],
        max_tokens=plan.get("max_tokens"),
        canary_ratio=plan.get("canary_ratio"),
    )
    guessed, asked = [], []
    for row in rows:
        planned = workload.request(row["number"])
        body = orjson.loads(planned.body)
        facts = facts_of(Endpoint(planned.path), body, text_bytes=text_bytes(body))
        guessed.append(facts.prompt_tokens_estimate)
        asked.append(facts.max_tokens or 1)
    dice, size = np.random.default_rng(plan["seed"]), len(rows)
    guess, limit = np.array(guessed, dtype=np.int64), np.array(asked, dtype=np.int64)
    return Asks(
        at_s=np.array([row["at_s"] for row in rows], dtype=np.float64),
        device=np.zeros(size, dtype=np.int64),
        prompt_tokens=np.array([row.get("prompt_tokens", at) for row, at in zip(rows, guessed, strict=True)]),
        output_tokens=np.array([row.get("output_tokens") or at for row, at in zip(rows, asked, strict=True)]),
        privacy=np.array([PERSONAL if row.get("canary") else PUBLIC for row in rows], dtype=np.int64),
        luck=np.ones(size),
        network_factor=np.ones(size),
        guessed_prompt=guess,
        asked_output=limit,
        edge_factor=dice.choice(edge.factors, size),
        cloud_factor=dice.choice(cloud.factors, size),
    )
