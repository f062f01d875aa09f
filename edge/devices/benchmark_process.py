"""Measures what the processor reaches with numpy: matrix products, copy and triad; one JSON object on standard output.

A process of its own, because the number of threads of a linear-algebra library is fixed when it is loaded: it is told
to use one, and the threads here are ours. Run by file name with the standard library and numpy alone.

Copy counts 2 and triad 3 arrays moved, as STREAM does (McCalpin, "Memory Bandwidth and Machine Balance", 1995).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

_MATRIX_SIZES = (256, 512, 1024)
_ARRAY_SIZES_BYTES = (1 << 20, 16 << 20, 128 << 20)
_LEAST_S = 0.02
_BLOCK_ELEMENTS = 1 << 16
"""Of a triad: both of its steps on a block that stays in the cache."""


def main() -> None:
    """Arguments: repetitions of each measurement, then the numbers of threads."""
    repetitions, *threads = map(int, sys.argv[1:])
    print(json.dumps({str(count): _measured(count, repetitions) for count in threads}))  # noqa: T201 - the answer


def _measured(threads: int, repetitions: int) -> dict[str, dict[str, float]]:
    import numpy as np  # noqa: PLC0415 - the parent says what is missing

    with ThreadPoolExecutor(threads) as pool:

        def rates(prepare: Callable[[Any, int], Callable[[], Any]], amounts: dict[int, float]) -> dict[str, float]:
            return {
                str(size): _rate(pool, [prepare(np, size) for _ in range(threads)], amount * threads, repetitions)
                for size, amount in amounts.items()
            }

        return {
            "matmul": rates(_matmul, {size: 2.0 * size**3 for size in _MATRIX_SIZES}),
            "copy": rates(_copy, {size: 2.0 * size for size in _ARRAY_SIZES_BYTES}),
            "triad": rates(_triad, {size: 3.0 * size for size in _ARRAY_SIZES_BYTES}),
        }


def _rate(pool: ThreadPoolExecutor, calls: list[Callable[[], Any]], amount: float, repetitions: int) -> float:
    """Median amount per second, all `calls` side by side; short ones are repeated until they can be timed."""
    rounds = 1
    while (once := _seconds(pool, calls, rounds)) < _LEAST_S and rounds < 1 << 16:
        rounds *= max(2, int(_LEAST_S / max(once, 1e-6)))
    return median(amount * rounds / _seconds(pool, calls, rounds) for _ in range(repetitions))


def _seconds(pool: ThreadPoolExecutor, calls: list[Callable[[], Any]], rounds: int) -> float:
    def repeat(call: Callable[[], Any]) -> None:
        for _ in range(rounds):
            call()

    began = time.perf_counter()
    for done in [pool.submit(repeat, call) for call in calls]:
        done.result()
    return time.perf_counter() - began


def _matmul(np: Any, size: int) -> Callable[[], Any]:
    generator = np.random.default_rng(0)
    left, right = (generator.random((size, size), dtype=np.float32) for _ in range(2))
    out = np.empty_like(left)
    return lambda: np.matmul(left, right, out=out)


def _copy(np: Any, size_bytes: int) -> Callable[[], Any]:
    source = np.ones(size_bytes // 4, dtype=np.float32)
    target = np.zeros_like(source)
    return lambda: np.copyto(target, source)


def _triad(np: Any, size_bytes: int) -> Callable[[], Any]:
    left, right = (np.ones(size_bytes // 4, dtype=np.float32) for _ in range(2))
    target = np.zeros_like(left)
    scale = np.float32(3)

    def run() -> None:
        for begin in range(0, target.size, _BLOCK_ELEMENTS):
            block = slice(begin, begin + _BLOCK_ELEMENTS)
            np.multiply(right[block], scale, out=target[block])
            np.add(target[block], left[block], out=target[block])

    return run


if __name__ == "__main__":
    main()
