"""The beat of the live views: closes each second, samples temperatures, and tells watchers what changed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from router.admin.decisions import Decisions
from router.admin.fleet_view import FleetView
from router.admin.hub import Hub
from router.admin.live import LiveWindow
from router.admin.traces import STEP_S, Traces
from router.audit.query import row_of
from router.fleet.directory import FleetDirectory
from router.fleet.traffic import Tally
from shared.clock import Clock
from shared.errors import SettingsError, StateUnavailable
from shared.http.lifecycle import Lifecycle

_STEP_S = 0.5
_UNCHANGED_S = 2.0
"""How often a fleet that is as it was is sent anyway: the ages of reports move on."""
_AGES = frozenset({"age_ms", "cooling_ms"})


class Family(Protocol):
    """The workers of one port, of which this process is one."""

    async def exchange(self, news: Mapping[str, Any]) -> dict[str, Any]:
        """Tell the `news` of this worker, and learn those of the others (`router.workers.views`).

        Raises:
            StateUnavailable: the parent does not answer.
        """


class Pulse:
    """Owns the live window and the traces, and feeds the hub."""

    def __init__(
        self,
        view: FleetView,
        directory: FleetDirectory,
        decisions: Decisions,
        lifecycle: Lifecycle,
        clock: Clock,
        family: Family | None = None,
    ) -> None:
        """`family` is where the other workers of this port are heard, if this process is one of several."""
        self._family = family
        self._view = view
        self._directory = directory
        self._decisions = decisions
        self._lifecycle = lifecycle
        self._clock = clock
        self.live, self.traces, self.hub = LiveWindow(), Traces(), Hub()
        self._seen: list[dict[str, Any]] | None = None
        self._last = dict.fromkeys(("live", "trace", "fleet"), clock.now_ms())
        self._number = 0
        if family is not None:
            view.traffic.keep_untold()

    def hear(self, record: Mapping[str, Any]) -> None:
        """Take one audit record, before it is written."""
        if record.get("kind") == "request":
            self.live.take(record)
            self._decisions.take(record)
            if self.hub.watched:
                self.hub.decision(orjson.dumps(row_of(record)))

    async def run(self) -> None:
        """Beat for ever. While a file behind the view cannot be read, its watchers see the state before."""
        while True:
            await self._clock.sleep(_STEP_S)
            with contextlib.suppress(SettingsError):
                self.beat()
            if self._family is not None:
                with contextlib.suppress(StateUnavailable):  # its end ends this worker too
                    self._learn(await self._family.exchange(self._news()))

    def beat(self) -> None:
        """Do what is due."""
        elapsed_s = self._due("live", 1.0) if self._family is None else None
        if elapsed_s is not None:
            point = self.live.close(self._clock.unix_s(), elapsed_s, self._lifecycle.in_flight)
            self.hub.state("live", orjson.dumps(point))
        if self._due("trace", STEP_S) is not None:
            self.traces.sample(self._directory.snapshot(), self._clock.unix_s())
        if self.hub.watched:
            self._tell_fleet()
        else:
            self._seen = None

    def _news(self) -> dict[str, Any]:
        """What the other workers show of this one."""
        return {
            "second": self.live.cut(),
            "in_flight": self._lifecycle.in_flight,
            "watched": self.hub.watched,
            "number": self._number,
            "traffic": self._view.traffic.untold().plain(),
        }

    def _learn(self, told: Mapping[str, Any]) -> None:
        """Show what the others told."""
        self._number = told["number"]
        self.live.learn(told["points"])
        for point in told["points"]:
            self.hub.state("live", orjson.dumps(point))
        self._view.traffic.add(Tally.of(told["traffic"]), self._clock.now_ms())
        for row in told["rows"]:
            self.hub.decision(orjson.dumps(row))
        if told["missed"]:
            self.hub.missed(told["missed"])

    def _tell_fleet(self) -> None:
        facts = self._view.facts()
        lasting = [{name: value for name, value in each.items() if name not in _AGES} for each in facts["backends"]]
        if lasting != self._seen or self._due("fleet", _UNCHANGED_S) is not None:
            self._seen = lasting
            self.hub.state("fleet", orjson.dumps(facts))

    def _due(self, what: str, every_s: float) -> float | None:
        """Seconds since this was done last, if that is long enough; it counts as done then."""
        now_ms = self._clock.now_ms()
        elapsed_s = (now_ms - self._last[what]) / 1000
        if elapsed_s < every_s - _STEP_S / 2:
            return None
        self._last[what] = now_ms
        return elapsed_s
