"""What the console of one worker shows of all: seconds added, traffic told once, decisions where somebody looks."""

from __future__ import annotations

from typing import Any

import orjson

from router.admin.live import LiveWindow
from router.fleet.traffic import Tally, Traffic
from router.workers import views as module
from router.workers.views import Views
from shared.testing.clock import ManualClock


def _record(tier: str = "edge", *, ttft_ms: float = 100.0, status: int = 200, name: str = "d") -> dict[str, Any]:
    attempt = {"tier": tier, "backend": f"{tier}-1", "ttft_ms": ttft_ms, "duration_ms": 300.0, "completion_tokens": 3}
    outcome = "ok" if status == 200 else "capacity"
    return {
        "kind": "request", "decision_id": name, "attempts": [attempt], "outcome": outcome, "status": status,
        "code": None if status == 200 else "no_capacity", "ttft_ms": ttft_ms,
    }  # fmt: skip


class Worker:
    """One worker's side, which speaks to the parent by value."""

    def __init__(self, views: Views, clock: ManualClock) -> None:
        self.live, self.traffic = LiveWindow(), Traffic()
        self.traffic.keep_untold()
        self.number, self.watched = 0, False
        self._views, self._clock = views, clock
        views.joined(self)

    def exchange(self, in_flight: int = 0) -> dict[str, Any]:
        news = {
            "second": self.live.cut(), "in_flight": in_flight, "watched": self.watched, "number": self.number,
            "traffic": self.traffic.untold().plain(),
        }  # fmt: skip
        told: dict[str, Any] = orjson.loads(orjson.dumps(self._views.exchange(self, orjson.loads(orjson.dumps(news)))))
        self.number = told["number"]
        self.live.learn(told["points"])
        self.traffic.add(Tally.of(told["traffic"]), self._clock.now_ms())
        return told


async def test_every_worker_shows_the_seconds_of_all() -> None:
    clock = ManualClock()
    views = Views(clock)
    one, two = Worker(views, clock), Worker(views, clock)
    for ttft_ms in (100.0, 200.0):
        one.live.take(_record(ttft_ms=ttft_ms))
    two.live.take(_record("cloud"))
    two.live.take(_record(status=503))
    one.exchange(in_flight=2)
    two.exchange(in_flight=3)
    await clock.advance(2)
    views.close_second()
    one.exchange()
    two.exchange()
    assert one.live.points() == two.live.points()
    [point] = one.live.points()
    assert point["requests"] == {"edge": 3, "cloud": 1, "none": 0} and point["requests_per_s"]["edge"] == 1.5
    assert (point["in_flight"], point["refused"], point["failed_per_s"]) == (5, {"no_capacity": 1}, 0.5)
    alone = LiveWindow()
    for ttft_ms in (100.0, 200.0):
        alone.take(_record(ttft_ms=ttft_ms))
    assert point["ttft_ms"]["edge"] == alone.close(0, 1, 0)["ttft_ms"]["edge"]


async def test_a_worker_that_begins_late_has_the_past() -> None:
    clock = ManualClock()
    views = Views(clock)
    one = Worker(views, clock)
    for n in range(3):
        one.live.take(_record())
        one.traffic.note(["edge-1"], [("cloud-1", "privacy")], "preferred_tier", clock.now_ms())
        one.exchange()
        await clock.advance(1)
        views.close_second()
        assert len(one.exchange()["points"]) == 1, n
    late = Worker(views, clock)
    late.exchange()
    assert len(late.live.points()) == 3
    assert late.traffic.lately(clock.now_ms()) == one.traffic.lately(clock.now_ms())


async def test_traffic_is_told_once() -> None:
    clock = ManualClock()
    views = Views(clock)
    workers = [Worker(views, clock) for _ in range(3)]
    for n, worker in enumerate(workers):
        worker.traffic.note([f"edge-{n % 2}"], [], f"reason-{n}", clock.now_ms())
    for _ in range(3):
        for worker in workers:
            worker.exchange()
    for worker in workers:
        lately = worker.traffic.lately(clock.now_ms())
        shares = {name: (each.attempts, each.share_ratio) for name, each in lately.items()}
        assert shares == {"edge-0": (2, 2 / 3), "edge-1": (1, 1 / 3)}
    views.left(workers[0])
    assert workers[1].exchange()["traffic"]["attempts"] == {}


def test_decisions_of_others_come_where_somebody_watches(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_ROWS", 3)
    clock = ManualClock()
    views = Views(clock)
    one, two = Worker(views, clock), Worker(views, clock)
    views.wrote(two, [_record(name="before")])
    one.watched = True
    assert one.exchange()["rows"] == []
    views.wrote(one, [_record(name="own")])
    views.wrote(two, [_record(name=f"d{n}") for n in range(5)] + [{"kind": "policy"}])
    told = one.exchange()
    assert [row["decision_id"] for row in told["rows"]] == ["d2", "d3", "d4"] and told["missed"] == 2
    assert (one.exchange()["rows"], two.exchange()["rows"]) == ([], [])
