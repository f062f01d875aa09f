"""A read that hangs costs one thread, and nobody's time or end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from edge.service import bounded_read
from edge.service.bounded_read import BoundedRead

_ENDS = """
import asyncio, threading
from edge.service import bounded_read
bounded_read._LIMIT_S = 0.01
print(asyncio.run(bounded_read.BoundedRead(threading.Event().wait)()))
"""


async def test_what_is_read_comes_back_and_so_does_a_fault() -> None:
    answers = iter([7, 8])
    read = BoundedRead(lambda: next(answers))
    assert [await read(), await read()] == [7, 8]

    def failing() -> int:
        raise ValueError("driver")

    fails = BoundedRead(failing)
    for _ in range(2):
        with pytest.raises(ValueError, match="driver"):
            await fails()


async def test_a_read_that_hangs_is_waited_for_in_vain_and_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_read, "_LIMIT_S", 0.01)
    released, calls = threading.Event(), 0

    def hanging() -> int:
        nonlocal calls
        calls += 1
        released.wait()
        return calls

    read = BoundedRead(hanging)
    assert [await read() for _ in range(3)] == [None, None, None]
    assert calls == 1
    released.set()
    async with asyncio.timeout(10):
        while (found := await read()) is None:
            pass
    assert found == 1


@pytest.mark.timeout(60)
def test_a_process_ends_although_a_read_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", _ENDS], capture_output=True, text=True, check=False, timeout=50)
    assert (ended.returncode, ended.stdout.strip()) == (0, "None"), ended.stderr
