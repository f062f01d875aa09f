"""FS-03: silent agents are counted, and said in one line per half minute; static backends are not."""

from __future__ import annotations

import io

import orjson
import pytest

from router.fleet.staleness import StaleWatch, stale_backends
from shared import logs
from shared.fleet import BackendSnapshot, BackendState, FleetSnapshot, Zone
from shared.testing.clock import ManualClock


def backend(name: str, received_ms: int | None) -> BackendSnapshot:
    return BackendSnapshot(name, Zone.DEVICE, f"http://{name}", BackendState.READY, (), received_ms)


class Directory:
    """A fleet that tests write."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.backends: tuple[BackendSnapshot, ...] = ()

    def snapshot(self) -> FleetSnapshot:
        return FleetSnapshot(self.backends, self._clock.now_ms())


@pytest.fixture
def lines() -> io.StringIO:
    sink = io.StringIO()
    logs.configure(stream=sink)
    return sink


def events(lines: io.StringIO) -> list[str]:
    return [orjson.loads(line)["event"] for line in lines.getvalue().splitlines()]


async def test_fs_03_one_line_in_thirty_seconds_and_one_at_the_end(lines: io.StringIO) -> None:
    clock = ManualClock()
    directory = Directory(clock)
    watch = StaleWatch(directory, lambda: 3_000, clock)  # type: ignore[arg-type]
    directory.backends = (backend("a", clock.now_ms()), backend("b", clock.now_ms()), backend("fixed", None))
    watch.look()
    assert (watch.count(), events(lines)) == (0, [])
    for _ in range(65):
        await clock.advance(1)
        watch.look()
    assert watch.count() == 2, "a backend that never reports is not silent"
    assert events(lines) == ["backends_stale"] * 3
    said = orjson.loads(lines.getvalue().splitlines()[0])
    assert (said["stale"], said["reporting"]) == (2, 2)
    directory.backends = (backend("a", clock.now_ms()), backend("b", clock.now_ms()))
    watch.look()
    watch.look()
    assert events(lines) == ["backends_stale"] * 3 + ["backends_fresh"]


def test_stale_is_older_than_the_limit_and_not_as_old() -> None:
    fleet = FleetSnapshot((backend("a", 7_000), backend("b", 6_999), backend("c", None)), 10_000)
    assert stale_backends(fleet, 3_000) == ("b",)
