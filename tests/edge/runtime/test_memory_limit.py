"""The real engine under limits of the kernel: what was planned fits, what does not is refused, not killed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from edge.devices.probe import probe
from edge.memory.capacity import MIB
from edge.memory.kv import KvType
from edge.packages.package import Package, opened_package
from edge.runtime.child import EngineChild, StartFailed, private_folder
from edge.runtime.launch import LAUNCHES
from edge.runtime.plan import PlanRequest, StaticPlan, plan_engine
from edge.runtime.session import engine_session
from shared.errors import InsufficientMemory

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

_CGROUPS = Path("/sys/fs/cgroup")


class _Limit:
    """A memory cgroup of version 1 or 2 with a hard limit."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.second = not (folder / "memory.limit_in_bytes").exists()
        (folder / ("memory.max" if self.second else "memory.limit_in_bytes")).write_text(str(limit_bytes))

    def hold(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    @property
    def kills(self) -> int:
        events = (self.folder / ("memory.events" if self.second else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in events.splitlines())["oom_kill"])


@contextlib.contextmanager
def limited(limit_bytes: int) -> Iterator[_Limit]:
    """A cgroup that is removed at the end; skips where this process may make none."""
    version_1 = _CGROUPS / "memory"
    folder = (version_1 if version_1.is_dir() else _CGROUPS) / f"isthmus-test-{uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this machine lets nobody here make a memory cgroup")
    try:
        if not any((folder / name).exists() for name in ("memory.max", "memory.limit_in_bytes")):
            pytest.skip("the memory controller is not delegated here")
        yield _Limit(folder, limit_bytes)
    finally:
        folder.rmdir()


async def _run(plan: StaticPlan, folder: Path, *, limit: _Limit | None = None, address_bytes: int | None = None) -> int:
    """Start the engine of `plan` under a limit and let it fill its whole context; the tokens that it took."""
    with opened_package(plan.package) as files:
        child = await EngineChild.spawn(LAUNCHES["gguf"], plan.options, files, private_folder(folder))
    try:
        # Before the engine has imported its library, let alone allocated a cache.
        if limit is not None:
            limit.hold(child.pid)
        if address_bytes is not None:
            psutil.Process(child.pid).rlimit(psutil.RLIMIT_AS, (address_bytes, address_bytes))
        await child.prove(120)
        connection, filling = child.connection, plan.options.context_tokens - 8
        body = {"prompt": [1 + index % 400 for index in range(filling)], "n_predict": 4, "ignore_eos": True}
        async with (
            engine_session(connection) as session,
            session.post("/completion", json=body) as answer,
        ):
            assert answer.status == 200
            return int((await answer.json())["tokens_evaluated"])
    finally:
        await child.stop(5)


@pytest.mark.parametrize(("kv_type", "available_mib"), [(KvType.F16, 243), (KvType.Q4_0, 230)])
async def test_kv_03_the_largest_context_that_fits_runs_full_under_exactly_that_limit(
    installed_model: Package, tmp_path: Path, kv_type: KvType, available_mib: int
) -> None:
    """Context unset; the kernel enforces what the plan was given, the reserve taken off."""
    device = replace(probe(), memory_available_bytes=available_mib * MIB)
    request = PlanRequest(
        kv_type=kv_type, reserve_bytes=64 * MIB, threads=1, threads_batch=1, minimum_context_tokens=512
    )
    plan = plan_engine(installed_model, device, request)
    assert 512 <= plan.options.context_tokens < 2048, "bounded by memory, far below what the model was trained for"
    with limited(plan.capacity.engine_bytes) as limit:
        filled = await _run(plan, tmp_path / "run", limit=limit)
        assert limit.kills == 0
    assert filled == plan.options.context_tokens - 8


async def test_kv_03_what_does_not_fit_is_refused_with_both_figures_before_a_process_is_started(
    installed_model: Package,
) -> None:
    device = replace(probe(), memory_available_bytes=200 * MIB)
    children = len(psutil.Process().children())
    with pytest.raises(InsufficientMemory) as refused:
        plan_engine(installed_model, device, PlanRequest(reserve_bytes=64 * MIB))
    assert refused.value.free_bytes == 200 * MIB
    assert refused.value.needed_bytes > 200 * MIB
    assert len(psutil.Process().children()) == children


@pytest.mark.parametrize("limit_mib", [350, 600])
async def test_an_engine_that_may_not_allocate_says_so_and_nobody_else_is_hurt(
    installed_model: Package, tmp_path: Path, limit_mib: int
) -> None:
    """The plan was wrong, or the limit came later: a start that failed, with memory as its reason."""
    plan = plan_engine(installed_model, probe(), PlanRequest(slots=4, context_tokens=8192, threads=1, threads_batch=1))
    with pytest.raises(StartFailed) as failed:
        await _run(plan, tmp_path / "run", address_bytes=limit_mib * MIB)
    assert "memory" in failed.value.reason
    assert failed.value.refused
