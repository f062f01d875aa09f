"""What the users of one locust process share: numbered requests, samples on their way to the report, own health.

Workers send their samples to the master with locust's own reports; the master, or a process that is alone, writes them
to the file of raw samples as they come and the report at the end.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

import gevent
import orjson
from locust import events
from locust.runners import MasterRunner, WorkerRunner

from loadtests.client import send
from loadtests.judgement import judged
from loadtests.samples import Sample, began_file, read_samples, to_dict, to_lines
from loadtests.settings import LoadtestSettings
from loadtests.streaming import Limits, Outcome
from loadtests.summary import spread, summary_of
from loadtests.workload.canaries import marker_of
from loadtests.workload.requests import Planned, Workload
from loadtests.workload.scenario import Kind, read_scenario
from shared.settings import load

_MESSAGE, END_MESSAGE = "isthmus", "isthmus-end"
_LOOK_S = 0.05
_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream"}


class AnswerFailed(Exception):
    """One failed answer; the message is its category, so that locust groups by it."""


class Generator:
    """One locust process."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self.settings = settings = load(LoadtestSettings, "loadtest")
        self.limits = Limits(
            stall_s=settings.stall_s, total_s=settings.total_s, gap_s=settings.gap_s, retries=settings.retries
        )
        self.host = (environment.host or settings.host).rstrip("/")
        self.seed = 1 if settings.seed is None else settings.seed
        self.workload = Workload(
            read_scenario(settings.scenario),
            model=settings.model,
            adapters=settings.adapters,
            marker=marker_of(self.seed, settings.run_id),
            seed=self.seed,
            max_tokens=settings.max_tokens,
            canary_ratio=settings.canary_ratio,
        )
        self.headers = dict(_HEADERS)
        if settings.api_key is not None:
            self.headers["Authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        if settings.route is not None:
            self.headers["x-isthmus-route"] = settings.route
        self.overflow = 0
        """Requests of an open loop that were not sent because too many were open."""
        self.started_s = self._stopped_s = time.monotonic()
        self._samples: list[Sample] = []
        self._begun = 0
        self._sequence = itertools.count()
        self._health = Health()
        self._finished = False
        self._workers: dict[str, dict[str, Any]] = {}
        self._file: Path | None = None
        events.test_start.add_listener(self._start)
        events.test_stop.add_listener(self._stop)
        events.quit.add_listener(self._write)  # not quitting: workers send their last figures after that
        events.report_to_master.add_listener(self._report)
        events.worker_report.add_listener(self._collect)
        if isinstance(environment.runner, MasterRunner):
            environment.runner.register_message(_MESSAGE, self._take_last)
        elif isinstance(environment.runner, WorkerRunner):
            environment.runner.register_message(END_MESSAGE, self._end)

    @property
    def worker(self) -> int:
        """Place of this process among those that send."""
        return max(0, getattr(self.environment.runner, "worker_index", 0))

    def next_number(self) -> int:
        """The number of the next request of this process: workers count in turns, so that no number comes twice."""
        return self.worker + self.settings.workers * next(self._sequence)

    def ask(self, pool: Any, number: int, kind: Kind | None = None, *, due_s: float | None = None) -> Outcome:
        """Send one request and keep its sample; `due_s` is its moment in seconds of the run in an open loop."""
        planned = self.workload.request(number, kind)
        self._begun += 1
        now_s = time.monotonic()
        outcome = judged(
            send(
                pool,
                self.host + planned.path,
                planned.body,
                self.headers,
                self.limits,
                streamed=planned.streamed,
                due_s=None if due_s is None else self.started_s + due_s,
            ),
            canary=planned.canary is not None,
            route=self.settings.route,
            masked=self.settings.personal == "mask",
        )
        at_s = now_s - self.started_s
        late_ms = None if due_s is None else (at_s - due_s) * 1000
        self._record(planned, outcome, at_s if due_s is None else due_s, late_ms)
        return outcome

    def _record(self, planned: Planned, outcome: Outcome, at_s: float, late_ms: float | None) -> None:
        leaked = len(planned.canary or "") if outcome.failure == "privacy_violation" else 0
        canary = planned.canary is not None
        self._samples.append(Sample(planned.number, planned.kind, at_s, outcome, late_ms, canary, leaked, self.worker))
        name = planned.path
        if outcome.failure is not None:
            self._fire("total", name, None, AnswerFailed(outcome.label))
            return
        self._fire("total", name, outcome.total_ms)
        self._fire("ttft", name, outcome.ttft_ms)
        self._fire("tpot", name, outcome.tpot_ms)

    def _fire(self, kind: str, name: str, time_ms: float | None, error: Exception | None = None) -> None:
        if time_ms is None and error is None:
            return
        self.environment.events.request.fire(
            request_type=kind, name=name, response_time=time_ms, response_length=0, exception=error, context={}
        )

    def _start(self, **_: Any) -> None:
        self.started_s = time.monotonic()
        self._health.start()
        if self.settings.samples is not None and not isinstance(self.environment.runner, WorkerRunner):
            began_file(self.settings.samples).write_text(str(self.started_s), encoding="ascii")

    def _stop(self, **_: Any) -> None:
        self._stopped_s = time.monotonic()
        self._finished = True
        self._health.stop()
        if isinstance(self.environment.runner, WorkerRunner):
            # Locust's own last report may come too late for its master; this one is waited for.
            self.environment.runner.send_message(_MESSAGE, self._part())

    def _end(self, **_: Any) -> None:
        """The time is over. Asked this way, a worker stays known to its master until its last figures are there."""
        self.environment.runner.stop()

    @property
    def finished(self) -> set[str]:
        """Locust's names of the workers that reported their end."""
        return {name for name, part in self._workers.items() if part["finished"]}

    def _take_last(self, environment: Any, msg: Any, **_: Any) -> None:
        self._keep(msg.node_id, msg.data)

    def _part(self) -> dict[str, Any]:
        """What happened since the last call, with what the process says of itself."""
        rows, self._samples = [to_dict(sample) for sample in self._samples], []
        return {
            "rows": rows,
            "begun": self._begun,
            "overflow": self.overflow,
            "worker": self.worker,
            "finished": self._finished,
            "plan": self._plan(),
            **self._health.figures(),
        }

    def _plan(self) -> str:
        """Digest of what decides on the requests: workers of one run must agree on it."""
        mattering = self.settings.model_dump(mode="json", include=_PLAN)
        return hashlib.sha256(orjson.dumps(mattering, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]

    def _report(self, data: dict[str, Any], **_: Any) -> None:
        data[_MESSAGE] = self._part()

    def _collect(self, client_id: str, data: dict[str, Any], **_: Any) -> None:
        self._keep(client_id, data[_MESSAGE])

    def _keep(self, name: str, part: dict[str, Any]) -> None:
        if self._file is None:
            self._file = self.settings.samples or Path(tempfile.mkstemp(prefix="isthmus-", suffix=".jsonl")[1])
            self._file.write_bytes(b"")
        with self._file.open("ab") as out:
            out.write(to_lines(part.pop("rows")))
        self._workers[name] = part

    def _write(self, **_: Any) -> None:
        if isinstance(self.environment.runner, WorkerRunner):
            return
        if not self._workers or self._begun:
            self._keep("local", self._part())
        if self._file is None:
            return
        if self.settings.report is not None:
            begun = sum(part["begun"] for part in self._workers.values())
            figures = summary_of(read_samples(self._file), self._stopped_s - self.started_s, begun=begun)
            report = {**figures, "generator": {"workers": list(self._workers.values())}}
            self.settings.report.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))
        if self.settings.samples is None:
            self._file.unlink()


_PLAN = {
    "scenario", "model", "adapters", "route", "rate_per_s", "shape", "seed", "run_id", "workers", "max_tokens",
    "canary_ratio", "personal", "retries",
}  # fmt: skip


class Health:
    """What a process that sends says of itself: processor time, and how late it wakes up."""

    def __init__(self) -> None:
        self._late_ms = array("f")
        self._cpu_s = self._began_s = self._used_s = self._lasted_s = 0.0
        self._watch: Any = None

    def start(self) -> None:
        """Begin to watch."""
        self._began_s, self._cpu_s = time.monotonic(), time.process_time()
        self._late_ms = array("f")
        self._watch = gevent.spawn(self._look_on)

    def stop(self) -> None:
        """Stop watching; the figures stay as they are."""
        self._measure()
        if self._watch is not None:
            self._watch.kill(block=False)
            self._watch = None

    def figures(self) -> dict[str, Any]:
        """Share of one core used, and the spread of lateness in milliseconds."""
        if self._watch is not None:
            self._measure()
        used = self._used_s / self._lasted_s if self._lasted_s > 0 else 0.0
        return {"cpu_ratio": round(used, 4), "lag_ms": spread(self._late_ms)}

    def _measure(self) -> None:
        self._used_s, self._lasted_s = time.process_time() - self._cpu_s, time.monotonic() - self._began_s

    def _look_on(self) -> None:
        while True:
            slept_s = time.monotonic()
            gevent.sleep(_LOOK_S)
            self._late_ms.append(max(0.0, (time.monotonic() - slept_s - _LOOK_S) * 1000))
