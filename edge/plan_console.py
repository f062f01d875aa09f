"""What `isthmus edge plan` prints: red lines and tables for people, JSON for programs, and the grid of measurements."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from rich.console import Console
from rich.table import Table

from edge.console import MIB, library, print_json, text_console
from edge.packages.outline import Outline
from edge.runtime.measure import Comparison, compare, grid
from edge.runtime.outlook import Outlook
from edge.settings import EdgeSettings

_FINDINGS = {
    "unknown_architecture_in_full": "No engine here runs this architecture; every layer is counted in full.",
    "sliding_window_in_full": "The layers with a sliding window are counted in full: an upper bound.",
    "latent_attention_in_full": "Latent attention is counted as full keys and values: an upper bound.",
    "weights_estimated": "The header describes no tensors; weights are estimated from the dimensions, upwards.",
    "weights_absent": "The file holds a header alone.",
    "parameters_derived": "Parameters are derived from the dimensions.",
}
_NAMES = {
    "weights": "weights",
    "kv": "KV cache",
    "runtime_and_compute": "runtime and compute",
    "draft": "draft model",
    "adapters": "adapters",
    "reserve": "reserve",
}


def show(answer: Outlook, *, as_json: bool) -> None:
    """The whole outlook."""
    if as_json:
        print_json(as_dict(answer))
        return
    console, plan, geometry = text_console(), answer.plan, answer.outline.geometry
    parameters = answer.outline.parameters
    console.print(
        f"{answer.outline.name}: {answer.outline.architecture}, {answer.outline.quantisation}, "
        f"{geometry.layers} layers, {parameters.total / 1e6:.1f} M parameters "
        f"({parameters.layers / 1e6:.1f} M in layers, "
        f"{parameters.embedding / 1e6:.1f} M embedding{', tied' if parameters.tied else ''})"
    )
    console.print(
        f"{plan.slots} slot(s) of {plan.context_tokens} tokens, KV {plan.kv_type.value}, on {answer.device.name} with "
        f"{answer.device.memory.available / MIB:.0f} MiB"
    )
    for finding in answer.outline.findings:
        console.print(f"Note: {_FINDINGS.get(finding, finding)}")
    tables = [_shares(answer), _lines(answer), *([_capacity(answer)] if answer.capacity else []), _loading(answer)]
    for table in tables:
        console.print()
        console.print(table)


def as_dict(answer: Outlook) -> dict[str, Any]:
    """The outlook for programs; sizes in bytes, times in seconds, contexts per slot."""
    plan, device = answer.plan, answer.device
    return {
        "model": answer.outline.name,
        "architecture": answer.outline.architecture,
        "quantisation": answer.outline.quantisation,
        "findings": list(answer.outline.findings),
        "geometry": _geometry(answer.outline),
        "parameters": _parameters(answer.outline),
        "device": {
            "name": device.name,
            "memory_bytes": int(device.memory.available),
            "page_bytes": int(device.memory.page),
            "memory_bytes_per_s": device.memory.bytes_per_s,
            "storage_bytes_per_s": device.storage.bytes_per_s,
        },
        "context_tokens": plan.context_tokens,
        "slots": plan.slots,
        "kv_type": plan.kv_type.value,
        "draft": answer.draft.name if answer.draft is not None else None,
        "adapters": answer.adapters,
        "lines": {f"{name}_bytes": size_bytes for name, size_bytes in plan.lines},
        "total_bytes": plan.total_bytes,
        "red_lines": {
            line.name: {
                "unit": line.unit,
                "needed": line.needed,
                "limit": line.limit,
                "left": line.left,
                "crossed": line.crossed,
            }
            for line in answer.red_lines
        },
        "pages": {
            "count": answer.pages.count,
            "alignment_bytes": answer.pages.alignment_bytes,
            "data_offset_bytes": answer.pages.data_offset_bytes,
            "data_page_aligned": answer.pages.data_page_aligned,
        },
        "capacity": [dataclasses.asdict(row) | {"total_tokens_nominal": row.nominal_tokens} for row in answer.capacity],
        "loading": [dataclasses.asdict(row) | {"used": row.loading is answer.loading_used} for row in answer.loading],
    }


def measure(settings: EdgeSettings, model: str, *, as_json: bool) -> int:
    """Measure the grid and print it; 0 when every cell that could be measured is within its tolerance, else 1."""
    package = library(settings).show(model)
    rows = asyncio.run(_measured(settings, package, quiet=as_json))
    if as_json:
        print_json({"model": model, "cells": [_cell(row) for row in rows], "within": all(row.within for row in rows)})
    else:
        text_console().print(_comparisons(rows))
    return 0 if all(row.within for row in rows) else 1


async def _measured(settings: EdgeSettings, package: Any, *, quiet: bool) -> list[Comparison]:
    cells, rows = grid(), []
    with Console(stderr=True).status("", spinner="line") as status:
        async for row in compare(package, cells, settings.engine_dir / "measure"):
            rows.append(row)
            if not quiet:
                status.update(f"{len(rows)} of {len(cells)} measured")
    return rows


def _shares(answer: Outlook) -> Table:
    table = _table("memory", "MiB", "bytes")
    for name, size_bytes in answer.plan.lines:
        if size_bytes or name not in ("draft", "adapters"):
            table.add_row(_NAMES[name], f"{size_bytes / MIB:.1f}", str(size_bytes))
    table.add_row("total", f"{answer.plan.total_bytes / MIB:.1f}", str(answer.plan.total_bytes))
    return table


def _lines(answer: Outlook) -> Table:
    table = _table("red line", "needed", "limit", "left", "unit", "")
    for line in answer.red_lines:
        table.add_row(
            line.name,
            str(line.needed),
            str(line.limit),
            str(line.left),
            line.unit,
            "crossed" if line.crossed else "holds",
        )
    return table


def _capacity(answer: Outlook) -> Table:
    table = _table("KV type", "bytes per token", "tokens in all", "by nominal bits", "context per slot", "total MiB")
    for row in answer.capacity:
        if not row.supported:
            table.add_row(row.kv_type.value, "-", "-", "-", "does not suit the heads", "-")
            continue
        table.add_row(
            row.kv_type.value,
            str(row.bytes_per_token),
            str(row.total_tokens),
            str(row.nominal_tokens),
            str(row.context_tokens) if row.context_tokens else "does not fit",
            f"{row.total_bytes / MIB:.1f}",
        )
    return table


def _loading(answer: Outlook) -> Table:
    table = _table(
        "loading", "start s", "first token waits s", "resident MiB", "can be evicted", "lock limit MiB", "used"
    )
    for row in answer.loading:
        table.add_row(
            row.loading.value,
            f"{row.start_s:.2f}",
            f"{row.first_token_s:.2f}",
            f"{row.resident_bytes / MIB:.1f}",
            "yes" if row.evictable else "no",
            f"{row.needs_bytes / MIB:.1f}",
            "yes" if row.loading is answer.loading_used else "",
        )
    return table


def _comparisons(rows: list[Comparison]) -> Table:
    table = _table("context per slot", "slots", "KV type", "predicted MiB", "measured MiB", "error MiB", "error %", "")
    for row in rows:
        measured, error = row.measured_bytes, row.error_bytes
        shown = ["-", "-", "-"]
        if measured is not None and error is not None:
            shown = [f"{measured / MIB:.1f}", f"{error / MIB:+.1f}", f"{100 * error / measured:+.1f}"]
        verdict = "within" if row.within else row.failure or "beyond 5 % + 16 MiB"
        table.add_row(
            str(row.cell.context_tokens),
            str(row.cell.slots),
            row.cell.kv_type.value,
            f"{row.predicted_bytes / MIB:.1f}",
            *shown,
            verdict,
        )
    return table


def _cell(row: Comparison) -> dict[str, Any]:
    return {
        "context_tokens": row.cell.context_tokens,
        "slots": row.cell.slots,
        "kv_type": row.cell.kv_type.value,
        "predicted_bytes": row.predicted_bytes,
        "measured_bytes": row.measured_bytes,
        "error_bytes": row.error_bytes,
        "within": row.within,
        "failure": row.failure,
    }


def _geometry(outline: Outline) -> dict[str, Any]:
    return dataclasses.asdict(outline.geometry) | {"layers": outline.geometry.layers}


def _parameters(outline: Outline) -> dict[str, Any]:
    parameters = outline.parameters
    return {
        "embedding": parameters.embedding,
        "layer": max(parameters.by_layer),
        "layers": parameters.layers,
        "head": parameters.head,
        "other": parameters.other,
        "tied": parameters.tied,
        "total": parameters.total,
    }


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    return table
