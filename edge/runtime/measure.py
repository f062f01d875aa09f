"""Holds the memory plan against the truth: starts the real engine for each cell of a grid and reads what it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import aiohttp
import psutil

from edge.devices.probe import probe
from edge.memory.capacity import MIB, Budget, Demand, plan_of
from edge.memory.kv import KvType, row_fits
from edge.packages.formats.files import Files
from edge.packages.package import Package, check_contents, check_file, opened_package
from edge.runtime.child import EngineChild, StartFailed, private_folder
from edge.runtime.launch import LAUNCHES
from edge.runtime.options import EngineOptions
from edge.runtime.plan import DETERMINISTIC_UBATCH_TOKENS
from edge.runtime.session import engine_session
from shared.errors import SettingsError

CONTEXTS_TOKENS = (2048, 8192, 32768)
SLOTS = (1, 4)
TOLERANCE_RATIO = 0.05
TOLERANCE_BYTES = 16 * MIB
_START_LIMIT_S = 300.0
_STOP_GRACE_S = 3.0
_PROMPT_TOKENS = 4 * DETERMINISTIC_UBATCH_TOKENS
"""Several micro-batches: compute buffers are touched on their first use."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the grid; the context is per slot."""

    context_tokens: int
    slots: int
    kv_type: KvType


@dataclass(frozen=True, slots=True)
class Comparison:
    """Predicted and measured bytes of one engine process: all resident pages. `failure`: why nothing was measured."""

    cell: Cell
    predicted_bytes: int
    measured_bytes: int | None
    failure: str | None = None

    @property
    def error_bytes(self) -> int | None:
        """Prediction minus truth."""
        return None if self.measured_bytes is None else self.predicted_bytes - self.measured_bytes

    @property
    def within(self) -> bool:
        """Whether the error is at most 5 % of the truth + 16 MiB. What was not measured is not within."""
        error, measured = self.error_bytes, self.measured_bytes
        return error is not None and measured is not None and abs(error) <= TOLERANCE_RATIO * measured + TOLERANCE_BYTES


def grid(
    contexts: Sequence[int] = CONTEXTS_TOKENS, kv_types: Sequence[KvType] = tuple(KvType), slots: Sequence[int] = SLOTS
) -> tuple[Cell, ...]:
    """Every combination."""
    return tuple(Cell(*point) for point in product(contexts, slots, kv_types))


async def compare(package: Package, cells: Sequence[Cell], run_dir: Path) -> AsyncIterator[Comparison]:
    """One engine after another; each cell as soon as it is known.

    Contexts beyond what the model was trained for are measured too: the engine allocates them all the same.

    Raises:
        TrustError: the package is not what it was.
        SettingsError: it is no package of the engine that is measured.
        OSError: there can be no folder for the engine's socket.
    """
    if package.manifest.model.format != "gguf":
        raise SettingsError("Only the engine of GGUF packages is measured.", param="model")
    folder = private_folder(run_dir)
    with opened_package(package) as files:
        check_contents(package, files)
        for file in package.manifest.files:
            check_file(file, files.descriptor(file.path))
        for cell in cells:
            yield await _compared(package, files, cell, folder)


async def _compared(package: Package, files: Files, cell: Cell, folder: Path) -> Comparison:
    geometry = package.manifest.geometry
    predicted = plan_of(
        geometry,
        Budget(available_bytes=0, weights_bytes=package.manifest.model_file.size_bytes, reserve_bytes=0),
        Demand(cell.slots, cell.kv_type, DETERMINISTIC_UBATCH_TOKENS, cell.context_tokens),
        cell.context_tokens,
    ).engine_bytes
    if not row_fits(geometry, cell.kv_type):
        return Comparison(cell, predicted, None, "this KV type does not suit the model")
    if predicted > probe().memory_available_bytes:
        return Comparison(cell, predicted, None, "does not fit the memory that is free")
    options = EngineOptions(
        model_alias=package.name,
        context_tokens=cell.context_tokens,
        slots=cell.slots,
        threads=1,
        threads_batch=1,
        kv_type=cell.kv_type,
        ubatch_tokens=DETERMINISTIC_UBATCH_TOKENS,
    )
    child = await EngineChild.spawn(LAUNCHES["gguf"], options, files, folder)
    try:
        await child.prove(_START_LIMIT_S)
        await _prompt(child)
        return Comparison(cell, predicted, psutil.Process(child.pid).memory_info().rss)
    except StartFailed as failure:
        return Comparison(cell, predicted, None, failure.reason)
    finally:
        await child.stop(_STOP_GRACE_S)


async def _prompt(child: EngineChild) -> None:
    """Let the engine read a prompt of several micro-batches, so that what is allocated lazily is there."""
    body = {"prompt": [1 + index % 200 for index in range(_PROMPT_TOKENS)], "n_predict": 1, "temperature": 0}
    try:
        async with (
            engine_session(child.connection) as session,
            session.post("/completion", json=body) as answer,
        ):
            await answer.read()
            if answer.status != 200:
                raise StartFailed(f"The engine answered a prompt with status {answer.status}.")
    except aiohttp.ClientError:
        raise StartFailed("The engine broke off a prompt.") from None
