"""Chooses threads, spinning and batch of an engine from what short trials measured, alone and beside a busy process.

Two rules. A choice that collapses as soon as something else wants a core is none, however fast it is alone: threads
that wait for each other at barriers then wait for whatever the scheduler does (70-fold slower was measured). And one
batch of a long prompt must not hold up the streams beside it for longer than `STALL_BUDGET_S`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

STALL_LIMIT_S = 1.0
"""What a running stream may be held up by another client's prompt of `STALL_PROMPT_TOKENS`."""
STALL_PROMPT_TOKENS = 1500
STALL_BUDGET_S = 0.7
"""Of the limit: a device is not always as fast as it was when it was measured."""
COLLAPSE_RATIO = 0.5
"""Below this share of the best speed beside a busy process, a choice has collapsed."""
MOST_THREADS = 256
"""An engine takes no more, however many cores a machine has."""
_WORTH_RATIO = 1.03
"""More threads, or another way of spinning, must be this much faster to be taken."""
_PROMPT_TOKENS, _OUTPUT_TOKENS = 1024, 256
"""The request by which ways of spinning are compared."""


class Spin(StrEnum):
    """How a thread waits for the others at a barrier."""

    LONG = "long"
    """As the engine's thread library does by itself: it burns its core for milliseconds."""
    BRIEF = "brief"
    """For microseconds, then it gives its core away."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens a second of both phases."""

    decode_tokens_per_s: float
    prefill_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One engine, both of whose pools have `threads`: alone, and beside one busy process."""

    threads: int
    spin: Spin
    alone: Speeds
    busy: Speeds


@dataclass(frozen=True, slots=True)
class Threads:
    """What was chosen for the two phases; spinning is one choice for the process."""

    decode: int
    prefill: int
    spin: Spin


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a prompt, measured: `seconds` for `tokens` after `past_tokens`."""

    past_tokens: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """All of it. `stall_s` is what one batch is expected to take at depth, beside a busy process."""

    threads: int
    threads_batch: int
    spin: Spin
    batch_tokens: int
    stall_s: float


def candidates(cores: int) -> tuple[tuple[int, Spin], ...]:
    """What is tried on `cores` usable cores, in this order: what would be chosen unmeasured comes first.

    Half of the cores stands for one thread per physical core. One thread waits for nobody, however it spins.
    """
    cores = min(cores, MOST_THREADS)
    counts = dict.fromkeys(count for count in (cores - 1, cores, cores // 2, 1) if count >= 1)
    return tuple((count, spin) for spin in Spin for count in counts if count > 1 or spin is Spin.LONG)


def choose_threads(trials: Sequence[Trial]) -> Threads:
    """Of those that do not collapse beside a busy process the fastest alone, for each phase. Where no way of spinning
    has one for both phases: what is fastest beside that process.

    Raises:
        ValueError: there is no trial.
    """
    if not trials:
        raise ValueError("nothing was tried")
    decoding = _standing({trial: trial.busy.decode_tokens_per_s for trial in trials})
    reading = _standing({trial: trial.busy.prefill_tokens_per_s for trial in trials})
    alone = _best(decoding, reading, lambda trial: trial.alone)
    busy = _best(trials, trials, lambda trial: trial.busy) if alone is None else alone
    assert busy is not None  # noqa: S101 - there is a trial, and it is of one of the ways
    return busy


def _best(decoding: Sequence[Trial], reading: Sequence[Trial], speeds: Callable[[Trial], Speeds]) -> Threads | None:
    """The way of spinning, and its threads, with which a request takes the least time by `speeds`."""
    best: tuple[float, Threads] | None = None
    for spin in Spin:
        decode = _fastest({each: speeds(each).decode_tokens_per_s for each in decoding if _runs(each, spin)})
        prefill = _fastest({each: speeds(each).prefill_tokens_per_s for each in reading if _runs(each, spin)})
        if decode is None or prefill is None:
            continue
        request_s = (
            _PROMPT_TOKENS / speeds(prefill).prefill_tokens_per_s + _OUTPUT_TOKENS / speeds(decode).decode_tokens_per_s
        )
        if best is None or request_s * _WORTH_RATIO < best[0]:
            best = (request_s, Threads(decode.threads, prefill.threads, spin))
    return None if best is None else best[1]


def choose_batch(measured: Sequence[Batch], sizes_tokens: Iterable[int]) -> tuple[int, float]:
    """The largest of the sizes whose batch stays within the budget at the end of a long prompt, else the smallest;
    and the seconds that it takes there.

    The time of a token grows with its depth in a straight line (attention), which least squares draw through what was
    measured. It never falls below what the deepest batch took.
    """
    deepest = max(measured, key=lambda batch: batch.past_tokens)
    per_token_s = max(_at_depth([(each.past_tokens, each.seconds / each.tokens) for each in measured]),
                      deepest.seconds / deepest.tokens)  # fmt: skip
    sizes = sorted(sizes_tokens, reverse=True)
    fitting = next((size for size in sizes if size * per_token_s <= STALL_BUDGET_S), sizes[-1])
    return fitting, fitting * per_token_s


def _runs(trial: Trial, spin: Spin) -> bool:
    """One thread has nobody to wait for: its trial speaks for every way of spinning."""
    return trial.threads == 1 or trial.spin is spin


def _standing(busy: Mapping[Trial, float]) -> tuple[Trial, ...]:
    """Those that do not collapse."""
    return tuple(trial for trial, speed in busy.items() if speed >= COLLAPSE_RATIO * max(busy.values()))


def _fastest(alone: Mapping[Trial, float]) -> Trial | None:
    """The fastest; fewer threads where that is as good as equal."""
    best: Trial | None = None
    for trial in sorted(alone, key=lambda each: each.threads):
        if best is None or alone[trial] > _WORTH_RATIO * alone[best]:
            best = trial
    return best


def _at_depth(points: Sequence[tuple[int, float]]) -> float:
    """Seconds of one token at `STALL_PROMPT_TOKENS`, by the straight line through `points` (depth, seconds)."""
    depth, seconds = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - depth) ** 2 for x, _ in points)
    slope = sum((x - depth) * (y - seconds) for x, y in points) / spread if spread else 0.0
    return seconds + max(0.0, slope) * (STALL_PROMPT_TOKENS - depth)
