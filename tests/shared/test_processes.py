"""Every process of a run is found, also one that lost its parent, its group and its environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from shared.processes import descendants_of, end, is_running, marked

_SLEEP = "import time; time.sleep(600)"
# A child in a session of its own, without the run's environment: what a process that overwrote its title looks like.
_UNMARKED = f"import os, subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {_SLEEP!r}], env={{}}, "
_UNMARKED += "start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid, flush=True)"
_ADOPTER = f"""
import os, subprocess, sys
from shared.processes import adopt_orphans, descendants_of, end
adopt_orphans()
middle = subprocess.run([sys.executable, "-c", {_UNMARKED!r}], capture_output=True, text=True, check=True)
orphan = int(middle.stdout)
print(orphan, [p.pid for p in descendants_of([os.getpid()])] == [orphan], end(lambda: descendants_of([os.getpid()])))
"""


def is_running_pid(pid: int) -> bool:
    """Whether it runs; one that only waits to be collected does not."""
    return psutil.pid_exists(pid) and is_running(psutil.Process(pid))


@contextmanager
def running(code: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **env}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            end(lambda: descendants_of([process.pid]))


def test_descent_reaches_a_child_without_marks_and_leaves_this_process_out() -> None:
    with running(f"{_UNMARKED}; {_SLEEP}") as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert {p.pid for p in descendants_of([parent.pid])} == {parent.pid, child}
        assert os.getpid() not in {p.pid for p in descendants_of([os.getpid()])}
        assert end(lambda: descendants_of([parent.pid])) == 2
        assert not is_running_pid(child)


def test_one_that_adopts_orphans_keeps_and_ends_them() -> None:
    done = subprocess.run([sys.executable, "-c", _ADOPTER], capture_output=True, text=True, check=True, timeout=60)
    orphan, found, killed = done.stdout.split()
    assert found == "True"
    assert killed == "1"
    assert not is_running_pid(int(orphan))


def test_one_mark_of_several_is_enough_and_a_foreign_one_excludes() -> None:
    identity = {"ISTHMUS_TEST_DIR": "/a", "ISTHMUS_TEST_RUN": "1"}
    with running(_SLEEP, ISTHMUS_TEST_RUN="1") as one, running(_SLEEP, **identity | {"ISTHMUS_TEST_TIER": "x"}) as tier:
        assert {p.pid for p in marked(identity)} == {one.pid, tier.pid}
        assert {p.pid for p in marked(identity, narrowed={"ISTHMUS_TEST_TIER": "y"})} == {one.pid}
        assert marked({"ISTHMUS_TEST_DIR": "/b", "ISTHMUS_TEST_RUN": "1"}) == [psutil.Process(one.pid)]
        assert marked({"ISTHMUS_TEST_RUN": "2"}) == []


def test_output_below_a_folder_gives_a_process_away(tmp_path: Path) -> None:
    with (
        (tmp_path / "agent.log").open("w") as log,
        subprocess.Popen([sys.executable, "-c", _SLEEP], stdout=log, env={}) as process,
    ):
        try:
            found = [p.pid for p in marked({"ISTHMUS_TEST_RUN": "none"}, folders=[tmp_path])]
            assert found == [process.pid]
            assert marked({"ISTHMUS_TEST_RUN": "none"}, folders=[tmp_path / "agent"]) == []
        finally:
            process.kill()
