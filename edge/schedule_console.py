"""What `isthmus edge schedule` prints: placement, predictions, tax, engine settings, and prediction against truth."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from edge.console import library, print_json, text_console
from edge.device_console import measured_now
from edge.devices import benchmark, calibrated
from edge.devices.benchmark import Benchmark, machine_identity
from edge.devices.calibrated import Calibrated
from edge.devices.probe import DeviceFacts, probe
from edge.devices.profile import measured
from edge.devices.unit import UnitProfile
from edge.memory.kv import KvType
from edge.packages.outline import Outline, outline_of_file, outline_of_package
from edge.packages.package import Package
from edge.planning import plan_request, tuning_job
from edge.runtime.forecast import Ground, engine_version, measurements_dir, model_of, other_device, this_device
from edge.runtime.plan import batch_tokens, ubatch_tokens
from edge.runtime.prediction import CONTEXTS_TOKENS, Compared, Row, compare
from edge.scheduling.engine_settings import EngineSettings, engine_settings
from edge.scheduling.graph import Model
from edge.scheduling.schedule import Demand, Placed, Reason, Schedule, schedule
from edge.scheduling.tuning import Tuning
from edge.settings import EdgeSettings
from edge.tuning import known
from shared.errors import SettingsError

_MEASURED_THREADS = (1, 2)


def show(
    settings: EdgeSettings,
    name: str,
    profile: str | None,
    demand: Demand,
    threads: int | None,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """The plan for model `name` on this device or the one of `profile`.

    Raises:
        NotFound: it is not installed, or the file is not there.
        SettingsError: the profile does not hold, or the context is longer than the model was trained for.
    """
    outline = _outline(settings, name)
    model = Model(outline.geometry, outline.tensor_bytes, KvType(settings.memory.kv_type))
    trained = outline.geometry.trained_context_tokens
    if demand.context_tokens > trained:
        raise SettingsError(
            f"context is {demand.context_tokens}; the model was trained for {trained} tokens.", param="context"
        )
    tuning = _tuning(settings, name) if profile is None else None
    demand = _as_read(demand, settings, outline, tuning)
    ground = _ground(model, profile, demand, threads)
    plan = schedule(model, ground.units, demand, decode_units=ground.decode_units)
    engine = engine_settings(
        plan,
        ground.units,
        outline.geometry.layers,
        decode_by_threads=ground.decode_by_threads,
        prefill_by_threads=ground.prefill_by_threads,
        tuning=tuning,
    )
    if as_json:
        print_json(_as_dict(outline, ground, demand, plan, engine))
        return
    _print(outline, ground, demand, plan, engine, every=every)


def measure(settings: EdgeSettings, name: str, profile: str | None, *, as_json: bool) -> int:
    """Calibrate, compare and keep the calibration; 0 when every cell is within its tolerance, else 1.

    Raises:
        NotFound: the model is not installed.
        SettingsError: a profile was named, or the model is no GGUF package.
        StartFailed: the engine did not start or broke off.
    """
    if profile is not None:
        raise SettingsError("--measure measures this device; a profile describes another.", param="measure")
    package = library(settings).show(name)
    device = probe()
    peaks = _peaks(device)
    units = [
        (threads, measured(device, peaks, threads).units[0])
        for threads in _MEASURED_THREADS
        if threads <= device.cores_usable
    ]
    found = asyncio.run(_compared(settings, package, units, quiet=as_json))
    model = model_of(package)
    _keep(device, model, found)
    rows = [row for each in found for row in each.rows]
    within = all(row.within for row in rows)
    if as_json:
        print_json({"model": name, "rows": [_row(row) for row in rows], "within": within, "shares": _shares(found)})
    else:
        text_console().print(_comparison(rows))
    return 0 if within else 1


def calibrate(settings: EdgeSettings, name: str, profile: str | None) -> None:
    """Find threads, spinning and batch for the engine of `name` by trials, and keep them; under a minute mostly.

    Raises:
        NotFound: the model is not installed.
        SettingsError: a profile was named, the model is no GGUF package, or the settings leave nothing open.
        StartFailed: an engine did not start or broke off.
    """
    if profile is not None:
        raise SettingsError("--calibrate measures this device; a profile describes another.", param="calibrate")
    job = tuning_job(settings.model_copy(update={"model": name}))
    if job is None:
        raise SettingsError(
            "Only the engine of a GGUF package whose threads and batch the settings leave open is calibrated.",
            param="calibrate",
        )
    with Console(stderr=True).status("", spinner="line") as status:
        asyncio.run(job.run(lambda now: status.update(f"{now.done} of {now.steps} trials")))


def _as_read(demand: Demand, settings: EdgeSettings, outline: Outline, tuning: Tuning | None) -> Demand:
    """`demand` with the batches in which the engine reads a prompt."""
    request = dataclasses.replace(plan_request(settings), pooling=outline.pooling)
    batch = batch_tokens(request) if tuning is None else tuning.batch_tokens
    return dataclasses.replace(demand, batch_tokens=batch, ubatch_tokens=min(batch, ubatch_tokens(request)))


def _tuning(settings: EdgeSettings, name: str) -> Tuning | None:
    """What is kept for the engine of an installed package; nothing for a mere file."""
    if _is_file(name):
        return None
    return known(plan_request(settings), library(settings).show(name), probe(), measurements_dir())


def _outline(settings: EdgeSettings, model: str) -> Outline:
    if _is_file(model):
        return outline_of_file(Path(model))
    return outline_of_package(library(settings).show(model))


def _is_file(model: str) -> bool:
    return "/" in model or model.endswith(".gguf")


def _ground(model: Model, profile: str | None, demand: Demand, threads: int | None) -> Ground:
    if profile is None:
        device = probe()
        return this_device(model, demand, device, _peaks(device), measurements_dir(), threads)
    if threads is not None:
        raise SettingsError("--threads is for this device; a profile states peaks for all cores.", param="threads")
    return other_device(profile)


def _peaks(device: DeviceFacts) -> Benchmark:
    return benchmark.kept(measurements_dir(), device) or measured_now(device)


async def _compared(
    settings: EdgeSettings, package: Package, units: Sequence[tuple[int, UnitProfile]], *, quiet: bool
) -> list[Compared]:
    found = []
    with Console(stderr=True).status("", spinner="line") as status:
        async for each in compare(package, units, CONTEXTS_TOKENS, settings.engine_dir / "measure"):
            found.append(each)
            if not quiet:
                status.update(f"{each.threads} thread(s) measured")
    return found


def _keep(device: DeviceFacts, model: Model, found: Sequence[Compared]) -> None:
    calibrated.keep(
        measurements_dir(),
        Calibrated(
            identity=machine_identity(device),
            engine=engine_version(),
            weight_types=tuple(sorted(model.types)),
            kv_type=model.kv_type.value,
            by_threads={each.threads: each.unit for each in found},
        ),
    )


def _print(
    outline: Outline, ground: Ground, demand: Demand, plan: Schedule, engine: EngineSettings, *, every: bool
) -> None:
    console = text_console()
    console.print(
        f"{outline.name}: {outline.architecture}, {outline.quantisation}, {outline.geometry.layers} layers, "
        f"on {ground.name}, prompt of {demand.context_tokens} tokens"
    )
    for line in _notes(outline, ground, plan, engine):
        console.print(f"Note: {line}")
    console.print()
    console.print(_predictions(plan))
    console.print()
    console.print(_operators(plan, every=every))
    console.print()
    console.print(_engine(engine, demand))


def _notes(outline: Outline, ground: Ground, plan: Schedule, engine: EngineSettings) -> list[str]:
    notes = []
    if not ground.calibrated:
        remedy = "state efficiency in the profile" if ground.described else "--measure calibrates this device"
        notes.append(f"Not calibrated: this is the plain roofline of the peaks ({remedy}).")
    if "weights_estimated" in outline.findings:
        notes.append("The header describes no tensors; weights are estimated from the dimensions, upwards.")
    refusals: dict[tuple[str, str], list[str]] = {}
    for refused in plan.refused:
        refusals.setdefault((refused.unit, refused.why.value), []).append(refused.kind.value)
    notes += [f"{unit} does not take {', '.join(kinds)}: {why}." for (unit, why), kinds in refusals.items()]
    if plan.reason is Reason.FALLBACK_OVER_BUDGET and plan.given_up_tax_ratio is not None:
        notes.append(
            f"On {' and '.join(plan.given_up_units)} fallback would cost {100 * plan.given_up_tax_ratio:.0f} % of the "
            f"time (budget {100 * plan.tax_budget_ratio:.0f} %): the whole graph moves to {plan.units[0]}."
        )
    if plan.reason is Reason.MEMORY:
        notes.append("A unit's memory does not hold its part of the fastest plan: as many last layers as fit.")
    if not engine.obeyed:
        notes.append("llama.cpp cannot drive every unit of this plan; its settings below are the best that it can do.")
    return notes


def _predictions(plan: Schedule) -> Table:
    table = _table("phase", "tokens/s", "seconds", "handing over", "bound", "fallback tax")
    for name, phase in (("prefill", plan.prefill), ("decode", plan.decode)):
        table.add_row(
            name,
            f"{phase.tokens_per_s:.1f}",
            f"{phase.seconds:.4f}",
            f"{100 * phase.handover_s / phase.seconds:.1f} %",
            phase.bound.value,
            f"{100 * plan.tax_ratio:.1f} % of {100 * plan.tax_budget_ratio:.0f} %",
        )
    return table


def _operators(plan: Schedule, *, every: bool) -> Table:
    table = _table("operator", "layers", "unit", "prefill ms", "bound", "decode ms", "bound")
    groups: dict[tuple[object, ...], list[Placed]] = {}
    for placed in plan.operators:
        key = (placed.kind, placed.unit, placed.layer if every else None, placed.prefill_bound, placed.decode_bound)
        groups.setdefault(key, []).append(placed)
    for found in groups.values():
        first = found[0]
        table.add_row(
            first.kind.value,
            _layers([placed.layer for placed in found if placed.layer is not None]),
            first.unit,
            f"{1000 * sum(placed.prefill_s for placed in found):.3f}",
            first.prefill_bound.value,
            f"{1000 * sum(placed.decode_s for placed in found):.3f}",
            first.decode_bound.value,
        )
    return table


def _layers(layers: list[int]) -> str:
    distinct = sorted(set(layers))
    if not distinct:
        return "-"
    whole = distinct == list(range(distinct[0], distinct[-1] + 1))
    return f"{distinct[0]}-{distinct[-1]}" if whole and len(distinct) > 1 else ",".join(map(str, distinct))


def _engine(engine: EngineSettings, demand: Demand) -> Table:
    table = Table("engine setting", "value", box=None)
    table.add_row("n_gpu_layers", str(engine.n_gpu_layers))
    table.add_row("threads, decode", str(engine.threads))
    table.add_row("threads, prefill", str(engine.threads_batch))
    table.add_row("spinning", engine.spin.value)
    table.add_row("batch", str(demand.batch_tokens))
    table.add_row("chosen by", engine.chosen_by.value)
    if engine.stall_s is not None:
        table.add_row("stall by a long prompt", f"{engine.stall_s:.2f} s")
    table.add_row("draft device", engine.draft_device or "processor")
    for pattern, buffer in engine.tensor_overrides:
        table.add_row("tensor override", f"{pattern}={buffer}")
    return table


def _comparison(rows: Sequence[Row]) -> Table:
    table = _table(
        "threads", "context", "phase", "predicted tokens/s", "measured tokens/s", "ratio", "by wall clock", ""
    )
    for row in rows:
        table.add_row(
            str(row.threads),
            str(row.context_tokens),
            row.phase,
            f"{row.predicted_tokens_per_s:.1f}",
            f"{row.measured_tokens_per_s:.1f}",
            f"{row.ratio:.2f}",
            f"{row.wall_tokens_per_s:.1f}",
            "within" if row.within else "beyond 25 %",
        )
    return table


def _row(row: Row) -> dict[str, Any]:
    return dataclasses.asdict(row) | {"ratio": row.ratio, "within": row.within}


def _shares(found: Sequence[Compared]) -> dict[str, Any]:
    return {str(each.threads): each.unit.model_dump(mode="json")["efficiency"] for each in found}


def _as_dict(
    outline: Outline, ground: Ground, demand: Demand, plan: Schedule, engine: EngineSettings
) -> dict[str, Any]:
    return {
        "model": outline.name,
        "architecture": outline.architecture,
        "quantisation": outline.quantisation,
        "findings": list(outline.findings),
        "device": ground.name,
        "calibrated": ground.calibrated,
        "context_tokens": demand.context_tokens,
        "output_tokens": demand.output_tokens,
        "reason": plan.reason.value,
        "units": list(plan.units),
        "tax_ratio": plan.tax_ratio,
        "tax_budget_ratio": plan.tax_budget_ratio,
        "given_up": None
        if plan.given_up_tax_ratio is None
        else {"units": list(plan.given_up_units), "tax_ratio": plan.given_up_tax_ratio},
        "refused": [dataclasses.asdict(refused) for refused in plan.refused],
        "prefill": dataclasses.asdict(plan.prefill),
        "decode": dataclasses.asdict(plan.decode),
        "operators": [dataclasses.asdict(placed) for placed in plan.operators],
        "engine": dataclasses.asdict(engine),
    }


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    return table
