"""Holds predicted speed against the truth: calibrates on two short contexts, predicts others, and measures them.

Both are measured in rounds that take turns, and the middle of each time over the rounds counts: what slows the machine
for a while then slows both sides of the comparison, and a lucky moment of a short context is not held against the long
minutes of another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.devices.unit import UnitProfile
from edge.packages.package import Package
from edge.runtime.forecast import model_of
from edge.runtime.speed import (
    BATCH_TOKENS,
    UBATCH_TOKENS,
    Speed,
    SpeedBench,
    middle_of,
    most_context_tokens,
    speed_bench,
)
from edge.scheduling.calibration import LONG_TOKENS, SHORT_TOKENS, Samples, fit, workload_s
from edge.scheduling.graph import Model
from edge.scheduling.workload import decode, prefill

CONTEXTS_TOKENS = (128, 1024, 4096)
TOLERANCE_RATIO = 0.25
_ROUNDS = 3
_REPETITIONS_TOKENS = 500
"""In a round, a context is measured as often as fits these prompt tokens, at least once and at most three times."""


@dataclass(frozen=True, slots=True)
class Row:
    """Predicted and measured tokens per second of one phase; `wall` is what the wall clock said."""

    threads: int
    context_tokens: int
    phase: str
    predicted_tokens_per_s: float
    measured_tokens_per_s: float
    wall_tokens_per_s: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_tokens_per_s / self.measured_tokens_per_s

    @property
    def within(self) -> bool:
        """Whether the prediction is within 25 % of the measurement."""
        return abs(self.ratio - 1) <= TOLERANCE_RATIO


@dataclass(frozen=True, slots=True)
class Compared:
    """One number of threads: the processor with what the engine reaches of it, and the rows."""

    unit: UnitProfile
    threads: int
    rows: tuple[Row, ...]


async def compare(
    package: Package, units: Sequence[tuple[int, UnitProfile]], contexts: Sequence[int], run_dir: Path
) -> AsyncIterator[Compared]:
    """For each number of threads with the processor's peaks at it, one after another.

    Contexts beyond what the model was trained for are left out; where the longer one of the calibration is among them,
    it is as long as there is room.

    Raises:
        as `speed_bench`.
    """
    model = model_of(package)
    most = most_context_tokens(model.geometry.trained_context_tokens)
    within, long = [context for context in contexts if context <= most], min(LONG_TOKENS, most)
    for threads, unit in units:
        async with speed_bench(package, run_dir, threads=threads, context_tokens=max([long, *within])) as bench:
            measured = await _measured(bench, sorted({SHORT_TOKENS, long, *within}))
        samples, truth = _samples(measured[SHORT_TOKENS], measured[long]), [measured[context] for context in within]
        share = fit(model, unit, samples, batch_tokens=BATCH_TOKENS, ubatch_tokens=UBATCH_TOKENS)
        calibrated = unit.model_copy(update={"efficiency": share})
        yield Compared(calibrated, threads, tuple(row for speed in truth for row in _rows(model, calibrated, speed)))


async def _measured(bench: SpeedBench, contexts: Sequence[int]) -> dict[int, Speed]:
    """The middle of each context over rounds, every other one of which goes from the longest to the shortest."""
    found: dict[int, list[Speed]] = {context: [] for context in contexts}
    for number in range(_ROUNDS):
        for context in contexts if number % 2 == 0 else reversed(contexts):
            found[context].append(await bench.speed(context, _repetitions(context)))
    return {context: middle_of(speeds) for context, speeds in found.items()}


def _samples(short: Speed, long: Speed) -> Samples:
    return Samples(
        short.decode_s,
        long.decode_s,
        short.prefill_s,
        long.prefill_s,
        short_tokens=short.context_tokens,
        long_tokens=long.context_tokens,
    )


def _repetitions(context_tokens: int) -> int:
    return max(1, min(3, _REPETITIONS_TOKENS // context_tokens))


def _rows(model: Model, unit: UnitProfile, speed: Speed) -> tuple[Row, Row]:
    context = speed.context_tokens
    prompt = prefill(context, batch_tokens=BATCH_TOKENS, ubatch_tokens=UBATCH_TOKENS)
    return (
        Row(
            speed.threads,
            context,
            "prefill",
            context / workload_s(model, prompt, unit),
            context / speed.prefill_s,
            context / speed.prefill_wall_s,
        ),
        Row(
            speed.threads,
            context,
            "decode",
            1 / workload_s(model, decode(context), unit),
            1 / speed.decode_s,
            1 / speed.decode_wall_s,
        ),
    )
