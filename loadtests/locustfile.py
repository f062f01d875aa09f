"""Locust scenario: users who stream chat answers, judged by what arrives and when.

    locust -f loadtests/locustfile.py --headless -u 8 -t 60s -H http://127.0.0.1:8080

Three metrics a good answer, by locust's request type: `ttft` (first content), `total` (`[DONE]`) and `tpot` (time
per output token). A failed answer is one failure under `total`, named by its category and without a time, so it
is in no percentile. Locust rounds what it keeps and sums over all types in its last row; the JSON report
(`ISTHMUS__LOADTEST__REPORT=FILE`) has exact values. Other settings: section `loadtest`.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import orjson
from locust import User, events, task
from locust.runners import WorkerRunner

from loadtests import prompts
from loadtests.client import new_pool, send
from loadtests.ledger import Ledger
from loadtests.settings import LoadtestSettings
from loadtests.streaming import Limits, Outcome
from shared.settings import load

NAME = "/v1/chat/completions"
_LEDGER = "isthmus_ledger"


class AnswerFailed(Exception):
    """One failed answer; the message is its category, so that locust groups by it."""


class Run:
    """What the users of one locust process share."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self.settings = load(LoadtestSettings, "loadtest")
        self.ledger = Ledger()
        self.numbers = itertools.count()
        self._started_s = self._stopped_s = time.monotonic()
        events.test_start.add_listener(self._start)
        events.test_stop.add_listener(self._stop)
        events.quit.add_listener(self._write)  # not quitting: workers send their last figures after that
        events.report_to_master.add_listener(self._report)
        events.worker_report.add_listener(self._collect)

    def record(self, outcome: Outcome) -> None:
        """Give one outcome to locust and to the ledger."""
        self.ledger.add(outcome)
        if outcome.failure is not None:
            self._fire("total", None, AnswerFailed(outcome.label))
            return
        self._fire("total", outcome.total_ms)
        self._fire("ttft", outcome.ttft_ms)
        self._fire("tpot", outcome.tpot_ms)

    def _fire(self, kind: str, time_ms: float | None, error: Exception | None = None) -> None:
        if time_ms is None and error is None:
            return
        self.environment.events.request.fire(
            request_type=kind, name=NAME, response_time=time_ms, response_length=0, exception=error, context={}
        )

    def _start(self, **_: Any) -> None:
        self._started_s = time.monotonic()

    def _stop(self, **_: Any) -> None:
        self._stopped_s = time.monotonic()

    def _write(self, **_: Any) -> None:
        if self.settings.report is not None and not isinstance(self.environment.runner, WorkerRunner):
            summary = self.ledger.summary(self._stopped_s - self._started_s)
            self.settings.report.write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2))

    def _report(self, data: dict[str, Any], **_: Any) -> None:
        data[_LEDGER] = self.ledger.take()

    def _collect(self, data: dict[str, Any], **_: Any) -> None:
        self.ledger.merge(data[_LEDGER])


class StreamingUser(User):  # type: ignore[misc]
    """Asks, reads the stream to its end, thinks, asks again; a failed answer never ends the loop."""

    def on_start(self) -> None:
        self.run: Run = self.environment.isthmus_run
        settings = self.run.settings
        self.pool = new_pool(connect_s=settings.connect_s, stall_s=settings.stall_s)
        self.limits = Limits(stall_s=settings.stall_s, total_s=settings.total_s)
        self.url = (self.environment.host or settings.host).rstrip("/") + NAME
        self.headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if settings.api_key is not None:
            self.headers["Authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        if settings.route is not None:
            self.headers["x-isthmus-route"] = settings.route
        self.failed = False

    def on_stop(self) -> None:
        self.pool.clear()

    @task  # type: ignore[untyped-decorator]
    def chat(self) -> None:
        settings = self.run.settings
        body = prompts.load_body(next(self.run.numbers), model=settings.model, max_tokens=settings.max_tokens)
        self.run.ledger.begin()
        outcome = send(self.pool, self.url, body, self.headers, self.limits)
        self.failed = outcome.failure is not None
        self.run.record(outcome)

    def wait_time(self) -> float:
        return self.run.settings.failure_pause_s if self.failed else self.run.settings.think_s


def _prepare(environment: Any, **_: Any) -> None:
    environment.isthmus_run = Run(environment)


events.init.add_listener(_prepare)
