"""The pool over a scripted engine: one load for many, waiting for room, leaving at any moment, failures."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.packages.adapters.adapter import ADAPTER_FILE, Adapter, AdapterManifest, AdapterName
from edge.packages.adapters.file import AdapterFacts
from edge.packages.lease import unused
from edge.packages.manifest import PackageFile
from edge.runtime.port import EngineState
from edge.service.adapters.pool import AdapterPool, AdapterUnavailable
from edge.service.adapters.resident import Limits
from shared.errors import AdapterRejected, InvalidRequest, NotFound, StartFailed
from shared.telemetry import EdgeMetrics, exposition, new_registry
from tests.edge.service.fakes import MODEL, FakeEngine
from tests.edge.service.harness import until

Make = Callable[..., Adapter]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A function that makes an installed adapter, as far as the pool looks at it."""

    def build(name: str, *, version: int = 1, size_bytes: int = 10) -> Adapter:
        folder = tmp_path / f"{name}{version}"
        folder.mkdir(exist_ok=True)
        sha256 = hashlib.sha256(f"{name}{version}".encode()).hexdigest()
        manifest = AdapterManifest(
            name=name,
            base=MODEL,
            base_digest="sha256:" + "0" * 64,
            source="test",
            facts=AdapterFacts(
                architecture="llama", rank=8, alpha=1, modules=1, parameters=1, types=("F16",), weight_bytes=1
            ),
            file=PackageFile(path=ADAPTER_FILE, sha256=sha256, size_bytes=size_bytes),
        )
        return Adapter(AdapterName(MODEL, name), folder, manifest)

    return build


class Pool:
    """A pool with room for two, its engine and its metrics."""

    def __init__(self, engine: FakeEngine, *, count: int = 2, wait_s: float = 20.0) -> None:
        self.engine = engine
        self.registry = new_registry()
        self.pool = AdapterPool(
            engine,
            Limits(count=count, size_bytes=100),
            wait_s=wait_s,
            metrics=EdgeMetrics(self.registry),
            may_overlap=lambda: True,
        )

    async def use(self, *adapters: Adapter, until_set: asyncio.Event | None = None) -> None:
        async with self.pool.using(adapters):
            if until_set is not None:
                await until_set.wait()

    def holding(self, adapter: Adapter) -> tuple[asyncio.Task[None], asyncio.Event]:
        """A request that uses `adapter` until the event is set."""
        end = asyncio.Event()
        return asyncio.create_task(self.use(adapter, until_set=end)), end

    def counted(self, name: str) -> float:
        lines = exposition(self.registry).decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"isthmus_edge_adapter{name} ")).split()[1])

    @property
    def loaded(self) -> list[str]:
        return [each.name.partition(":")[2] for each in self.pool.residents.loaded]


@pytest.fixture
async def pool(engine: FakeEngine) -> Pool:
    await engine.start()
    return Pool(engine)


def gate(engine: FakeEngine) -> asyncio.Event:
    """Let loads of `engine` take until the event is set."""
    opened = asyncio.Event()

    async def wait() -> None:
        await opened.wait()

    engine.loading = wait
    return opened


async def test_many_requests_for_one_adapter_make_one_load(pool: Pool, make: Make) -> None:
    opened, a = gate(pool.engine), make("a")
    requests = [asyncio.create_task(pool.use(a)) for _ in range(10)]
    await until(lambda: len(pool.engine.loads) == 1)
    opened.set()
    await asyncio.gather(*requests)
    await pool.use(a)
    assert pool.engine.loads == [(f"{MODEL}:a",)]
    assert pool.counted('_loads_total{outcome="loaded"}') == 1
    assert pool.counted("_hits_total") == 1
    assert pool.counted("s_resident") == 1


async def test_a_load_goes_on_when_the_one_who_asked_for_it_leaves(pool: Pool, make: Make) -> None:
    opened, a = gate(pool.engine), make("a")
    first, second = (asyncio.create_task(pool.use(a)) for _ in range(2))
    await until(lambda: len(pool.engine.loads) == 1)
    first.cancel()
    opened.set()
    await second
    assert pool.loaded == ["a"]


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (StartFailed("no"), AdapterUnavailable),
        (AdapterRejected("rank", code="rank_too_high"), InvalidRequest),
    ],
)
async def test_a_failed_load_fails_all_who_waited_once_and_changes_nothing(
    pool: Pool, make: Make, failure: Exception, expected: type[Exception]
) -> None:
    a, b = make("a"), make("b")
    await pool.use(a)
    opened = gate(pool.engine)
    pool.engine.failures.append(failure)
    requests = [asyncio.create_task(pool.use(b)) for _ in range(5)]
    await until(lambda: len(pool.engine.loads) == 2)
    opened.set()
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {expected}
    assert len(pool.engine.loads) == 2
    assert pool.loaded == ["a"]
    assert pool.counted('_loads_total{outcome="failed"}') == 1
    with unused(b.folder) as is_free:
        assert is_free
    await pool.use(b)
    assert pool.loaded == ["a", "b"]


async def test_lr_03_a_newcomer_waits_for_what_is_used_and_nobody_passes_it(pool: Pool, make: Make) -> None:
    """LR-03: both places are in use; C waits, and further users of A wait behind it instead of keeping it out."""
    a, b, c = make("a"), make("b"), make("c")
    users = [pool.holding(a), pool.holding(b)]
    await until(lambda: pool.loaded == ["a", "b"])
    newcomer, end_of_c = pool.holding(c)
    await until(lambda: pool.pool._room_wanted is not None)
    late, end_of_late = pool.holding(a)
    await asyncio.sleep(0)
    assert pool.pool.users(a.digest) == 1
    assert pool.loaded == ["a", "b"]
    users[1][1].set()
    await until(lambda: pool.loaded == ["a", "c"])
    for end in (end_of_c, end_of_late, users[0][1]):
        end.set()
    await asyncio.gather(newcomer, late, *(task for task, _ in users))
    assert pool.counted("_evictions_total") == 1
    assert pool.pool.users(a.digest) == 0


async def test_a_newcomer_that_waits_too_long_is_told_when_to_come_back(engine: FakeEngine, make: Make) -> None:
    await engine.start()
    pool = Pool(engine, count=1, wait_s=0.01)
    task, end = pool.holding(make("a"))
    await until(lambda: pool.loaded == ["a"])
    with pytest.raises(AdapterUnavailable) as caught:
        await pool.use(make("b"))
    assert caught.value.retry_after_s
    assert pool.loaded == ["a"]
    end.set()
    await task
    await pool.use(make("b"))
    assert pool.loaded == ["b"]


async def test_a_new_version_comes_at_once_beside_a_running_old_one(pool: Pool, make: Make) -> None:
    old, new = make("a"), make("a", version=2)
    task, end = pool.holding(old)
    await until(lambda: pool.loaded == ["a"])
    await pool.use(new)
    assert [each.digest for each in pool.pool.residents.loaded] == [new.digest]
    assert pool.pool.users(old.digest) == 1
    end.set()
    await task


async def test_pins_and_unloads(pool: Pool, make: Make) -> None:
    a, b, c = make("a"), make("b"), make("c")
    await pool.pool.pin(a)
    await pool.use(b)
    await pool.use(c)
    assert pool.loaded == ["a", "c"]
    with pytest.raises(InvalidRequest):
        await pool.pool.unload(str(a.name))
    pool.pool.unpin(str(a.name))
    with pytest.raises(NotFound):
        pool.pool.unpin(str(a.name))
    task, end = pool.holding(a)
    await until(lambda: pool.pool.users(a.digest) == 1)
    with pytest.raises(AdapterUnavailable):
        await pool.pool.unload(str(a.name))
    end.set()
    await task
    await pool.pool.unload(str(a.name))
    assert pool.loaded == ["c"]
    with pytest.raises(NotFound):
        await pool.pool.unload(str(a.name))


async def test_what_is_loaded_stays_on_the_disk_and_what_is_not_may_go(pool: Pool, make: Make) -> None:
    a = make("a")
    await pool.use(a)
    with unused(a.folder) as is_free:
        assert not is_free
    pool.pool.close()
    with unused(a.folder) as is_free:
        assert is_free


async def test_an_engine_that_came_back_without_its_adapters_loads_them_again(pool: Pool, make: Make) -> None:
    a = make("a")
    await pool.use(a)
    await pool.engine.serve_adapters((), overlap=False)
    pool.engine.set(EngineState.READY)
    pool.pool.follow(pool.engine.status)
    assert pool.loaded == []
    await pool.use(a)
    assert pool.loaded == ["a"]


async def test_what_can_never_fit_is_the_callers_fault(pool: Pool, make: Make) -> None:
    with pytest.raises(InvalidRequest, match="101 bytes"):
        await pool.use(make("a", size_bytes=101))
    with pytest.raises(InvalidRequest, match="3 adapters"):
        await pool.use(make("a"), make("b"), make("c"))


async def test_lr_an_adapter_that_was_removed_meanwhile_takes_no_other_one_with_it(pool: Pool, make: Make) -> None:
    """LR-03: it was to take the place of another one, which nobody is kept from after that."""
    a, b, gone = make("a"), make("b"), make("gone")
    await pool.use(a)
    await pool.use(b)
    gone.folder.rmdir()
    with pytest.raises(NotFound):
        await pool.use(gone)
    assert pool.loaded == ["a", "b"]
    async with asyncio.timeout(2):
        await pool.use(a)


async def test_lr_of_adapters_that_are_asked_for_together_none_is_held_without_the_others(
    pool: Pool, make: Make
) -> None:
    a, gone = make("a"), make("gone")
    gone.folder.rmdir()
    with pytest.raises(NotFound):
        await pool.use(a, gone)
    with unused(a.folder) as is_unused:
        assert is_unused
