"""Runs one load test: locust in processes of its own, faults at their time, canaries watched, and the whole judged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from loadtests.faults.acts import act_for
from loadtests.faults.play import Play, Seen, windows
from loadtests.faults.stack import Stack, stack_behind
from loadtests.objectives import SETTLING_S, Slo, verdicts
from loadtests.processes import Files, Generating, generating
from loadtests.samples import read_samples
from loadtests.settings import FaultName, LoadtestSettings
from loadtests.summary import by_kind, corrected_totals, ratio
from loadtests.validity import read_ceiling, reasons_against
from loadtests.workload.canaries import marker_of
from loadtests.workload.scenario import Kind, Scenario, read_scenario
from shared.errors import SettingsError

_OPEN = (
    "open loop: requests were sent by schedule whatever the answers did, and times count from the schedule, so that "
    "coordinated omission is avoided"
)
_CLOSED = (
    "closed loop: a user asks again only after an answer, so that a slow stack is asked less often; percentiles are "
    "what these users saw, and total_corrected_ms is what it would have been had they not waited"
)


def run(settings: LoadtestSettings) -> dict[str, Any]:
    """The report of a run without faults and objectives, of which no file is kept; raises as `run_in`."""
    with tempfile.TemporaryDirectory(prefix="isthmus-loadtest-") as folder:
        return asyncio.run(run_in(Path(folder), settings))


async def run_in(
    folder: Path, settings: LoadtestSettings, *, faults: Sequence[FaultName] = (), slo: Slo | None = None
) -> dict[str, Any]:
    """The report of one run, whose raw samples stay in `folder`.

    Raises:
        SettingsError: the scenario, a fault or an adapter cannot be had; nothing was sent.
        IsthmusError: locust did not start, did not end in time, or left no report.
    """
    if settings.fault_to_ratio <= settings.fault_from_ratio:
        raise SettingsError("fault_to_ratio must be above fault_from_ratio.", param="loadtest.fault_to_ratio")
    scenario = read_scenario(settings.scenario)
    settings = settings.model_copy(
        update={
            "seed": secrets.randbelow(2**31) if settings.seed is None else settings.seed,
            "run_id": settings.run_id or secrets.token_hex(4),
        }
    )
    marker = marker_of(settings.seed or 0, settings.run_id)
    files = Files(folder)
    began = datetime.now(UTC)
    async with stack_behind(settings) as stack:
        settings = await _with_adapters(settings, scenario, stack)
        planned = [
            (name, from_s, to_s, act_for(name, stack, settings))
            for name, from_s, to_s in windows(
                faults,
                from_s=settings.fault_from_ratio * settings.duration_s,
                to_s=settings.fault_to_ratio * settings.duration_s,
            )
        ]
        if stack.recorder is not None:
            await stack.recorder.watch(marker)
        play = Play(stack, files.samples)
        async with generating(settings, files) as generator:
            playing = asyncio.create_task(play.run(planned))
            try:
                generated = await generator.wait()
            finally:
                playing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await playing
                await play.leave(planned)
        tally = None if stack.recorder is None else await stack.recorder.tally()
    plan = _plan(settings, scenario, faults, began)
    return _report(plan, generated, tally, generator, play.seen, settings, files, slo)


def _report(
    plan: dict[str, Any],
    generated: dict[str, Any],
    tally: Mapping[str, Any] | None,
    generator: Generating,
    seen: Seen,
    settings: LoadtestSettings,
    files: Files,
    slo: Slo | None,
) -> dict[str, Any]:
    rows = read_samples(files.samples)
    leaks = _leaks(generated, tally)
    figures = {**generated, "leaks": leaks["bytes"]}
    # A fault that outlives the run is one until its end.
    bands = [(band.from_s, min(band.to_s, generated["duration_s"])) for band in seen.bands]
    held = [] if slo is None else verdicts(slo, rows, figures, bands)
    problems = [f"the fault {band.name} {band.problem}" for band in seen.bands if band.problem]
    problems += [f"the fault {name} never began" for name in plan["faults_asked"][len(seen.bands) :]]
    against = reasons_against(generated, settings, lost=generator.lost, problems=problems, ceiling_per_s=read_ceiling())
    return {
        "plan": plan,
        "valid": not against,
        "invalid_because": against,
        "passed": not against and all(each.met for each in held),
        "objectives": [asdict(each) for each in held],
        "leaks": leaks["bytes"],
        "leaks_evidence": leaks["evidence"],
        "recorder": tally,
        **generated,
        "total_corrected_ms": corrected_totals(rows) if settings.rate_per_s is None else {"count": 0},
        "by_kind": by_kind(rows, generated["duration_s"]),
        "faults": [
            {**asdict(band), "edge_ratio": _shares(rows, from_s, to_s)}
            for band, (from_s, to_s) in zip(seen.bands, bands, strict=True)
        ],
        "looks": seen.looks,
    }


def _plan(
    settings: LoadtestSettings, scenario: Scenario, faults: Sequence[FaultName], began: datetime
) -> dict[str, Any]:
    is_open = settings.rate_per_s is not None
    return {
        "version": 1,
        "scenario": settings.scenario,
        "about": scenario.about,
        "began": began.isoformat(timespec="seconds"),
        "host": settings.host,
        "model": settings.model,
        "loop": "open" if is_open else "closed",
        "coordinated_omission": _OPEN if is_open else _CLOSED,
        "users": None if is_open else settings.users,
        "rate_per_s": settings.rate_per_s,
        "shape": str(settings.shape),
        "duration_s": settings.duration_s,
        "workers": settings.workers,
        "seed": settings.seed,
        "run_id": settings.run_id,
        "route": settings.route,
        "max_tokens": settings.max_tokens,
        "canary_ratio": settings.canary_ratio,
        "faults_asked": list(faults),
        "lengths_tokens": {
            str(kind): scenario.sizes_of(kind).model_dump(mode="json") for kind in scenario.mix if scenario.mix[kind]
        },
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "python": platform.python_version()},
    }


def _leaks(generated: Mapping[str, Any], tally: Mapping[str, Any] | None) -> dict[str, Any]:
    """Bytes of canaries that reached a cloud, and how that is known."""
    by_answers = int(generated["leaked_bytes_by_answers"])
    if tally is None:
        evidence = "by the tier that each answer names; no recorder stood before the cloud"
        return {"bytes": by_answers, "evidence": evidence}
    return {
        "bytes": max(by_answers, int(tally["leaked_bytes"])),
        "evidence": f"by a recorder before the cloud, through which {tally['requests']} requests passed "
        f"({tally['request_bytes']} bytes)",
    }


def _shares(rows: Sequence[Mapping[str, Any]], from_s: float, to_s: float) -> dict[str, float | None]:
    """The edge's share of good answers before a fault, during it and once the stack has settled after it."""
    good = [row for row in rows if "failure" not in row]
    parts = {
        "before": [row for row in good if row["at_s"] < from_s],
        "during": [row for row in good if from_s <= row["at_s"] <= to_s],
        "after": [row for row in good if row["at_s"] > to_s + SETTLING_S],
    }
    return {name: ratio(sum(row.get("tier") == "edge" for row in part), len(part)) for name, part in parts.items()}


async def _with_adapters(settings: LoadtestSettings, scenario: Scenario, stack: Stack) -> LoadtestSettings:
    """The settings with the adapters that the tested host serves, where the scenario needs some and none is named."""
    if not scenario.mix.get(Kind.ADAPTERS) or settings.adapters:
        return settings
    try:
        async with stack.http.get(f"{stack.host}/v1/models", headers=stack.headers) as response:
            served = [str(model["id"]) for model in (await response.json())["data"]]
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
        served = []
    found = tuple(sorted(name for name in served if name.startswith(f"{settings.model}:")))
    if not found:
        raise SettingsError(
            "The scenario needs an adapter, and the tested host serves none of this model.", param="loadtest.adapters"
        )
    return settings.model_copy(update={"adapters": found})
