"""Locust scenario: users who ask a model, judged by what arrives and when.

    locust -f loadtests/locustfile.py --headless -u 8 -t 60s -H http://127.0.0.1:8080 [RagUser AgentUser …]

Without names of classes the users draw each request from the mix of the setting `scenario`. Three metrics a good
answer, by locust's request type: `ttft` (first text), `total` (`[DONE]`) and `tpot` (time per output token). A failed
answer is one failure under `total`, named by its category and without a time, so it is in no percentile. Locust
rounds what it keeps and sums over all types in its last row; the JSON report (`ISTHMUS__LOADTEST__REPORT=FILE`) and the
raw samples (`ISTHMUS__LOADTEST__SAMPLES=FILE`) are exact. Other settings: section `loadtest`.
"""

from __future__ import annotations

import itertools
import time
from typing import Any, ClassVar

import gevent
from gevent.pool import Pool
from locust import LoadTestShape, User, events, task
from locust.runners import STATE_MISSING, MasterRunner

from loadtests.client import new_pool
from loadtests.generator import END_MESSAGE, Generator
from loadtests.workload.arrivals import due_times, level
from loadtests.workload.scenario import Kind

_OPEN_LIMIT = 10_000
"""Requests that one process of an open loop has open at most; what is due beyond is counted, not sent."""
_SLICE_S = 0.25
_LAST_ANSWERS_S = 10.0
_LAST_FIGURES_S = 20.0
"""Longer than locust's stop timeout, which the workers' last answers have."""


class AskingUser(User):  # type: ignore[misc]
    """Asks, reads the answer to its end, thinks, asks again; a failed answer never ends the loop."""

    abstract = True
    kind: ClassVar[Kind | None] = None

    def on_start(self) -> None:
        self.generator: Generator = self.environment.isthmus_generator
        settings = self.generator.settings
        self.pool = new_pool(connect_s=settings.connect_s, stall_s=settings.stall_s)
        self.failed = False

    def on_stop(self) -> None:
        self.pool.clear()

    @task  # type: ignore[untyped-decorator]
    def ask(self) -> None:
        outcome = self.generator.ask(self.pool, self.generator.next_number(), self.kind)
        self.failed = outcome.failure is not None

    def wait_time(self) -> float:
        settings = self.generator.settings
        return settings.failure_pause_s if self.failed else settings.think_s


class ScenarioUser(AskingUser):
    """Draws each request from the mix of the scenario."""


class ChatUser(AskingUser):
    """Short questions."""

    kind = Kind.CHAT


class RagUser(AskingUser):
    """Questions about long retrieved passages."""

    kind = Kind.RAG


class AgentUser(AskingUser):
    """Conversations with tools."""

    kind = Kind.AGENT


class CompletionsUser(AskingUser):
    """The older completions route."""

    kind = Kind.COMPLETIONS


class EmbeddingsUser(AskingUser):
    """Vectors of texts."""

    kind = Kind.EMBEDDINGS


class AdapterUser(AskingUser):
    """Chat through adapters of the base model."""

    kind = Kind.ADAPTERS


class PrivacyUser(AskingUser):
    """Every prompt holds a canary."""

    kind = Kind.PRIVACY


class OpenLoop(User):  # type: ignore[misc]
    """Sends by schedule, whatever the answers do; there is one in each process, and together they keep the schedule."""

    def on_start(self) -> None:
        self.generator: Generator = self.environment.isthmus_generator
        settings = self.generator.settings
        self.pool = new_pool(connect_s=settings.connect_s, stall_s=settings.stall_s, connections=_OPEN_LIMIT)
        self.asking = Pool(_OPEN_LIMIT)
        schedule = due_times(
            settings.shape,
            rate_per_s=settings.rate_per_s or 1.0,
            duration_s=settings.duration_s,
            seed=self.generator.seed,
        )
        numbered = enumerate(schedule)
        self.schedule = itertools.islice(numbered, self.generator.worker, None, settings.workers)
        self.due = next(self.schedule, None)

    def on_stop(self) -> None:
        self.asking.join(timeout=_LAST_ANSWERS_S)
        self.pool.clear()

    @task  # type: ignore[untyped-decorator]
    def send_due(self) -> None:
        wait_s = _SLICE_S
        if self.due is not None:
            wait_s = self.generator.started_s + self.due[1] - time.monotonic()
        gevent.sleep(min(_SLICE_S, max(0.0, wait_s)))
        if self.due is None or wait_s > _SLICE_S:
            return
        number, due_s = self.due
        if self.asking.full():
            self.generator.overflow += 1
        else:
            self.asking.spawn(self.generator.ask, self.pool, number, due_s=due_s)
        self.due = next(self.schedule, None)

    def wait_time(self) -> float:
        return 0.0


class Shaped(LoadTestShape):  # type: ignore[misc]
    """How many users there are over the run; the moments of an open loop follow the same shape by themselves."""

    use_common_options = True

    def tick(self) -> tuple[int, float] | None:
        generator: Generator = self.runner.environment.isthmus_generator
        settings, options = generator.settings, self.runner.environment.parsed_options
        duration_s = float((options and options.run_time) or settings.duration_s)
        part = self.get_run_time() / duration_s
        if part >= 1.0:
            self._end(generator)
            return None
        if settings.rate_per_s is not None:
            return settings.workers, 100.0
        users = (options and options.num_users) or settings.users
        return max(1, round(users * level(settings.shape, part))), (options and options.spawn_rate) or 1.0

    def _end(self, generator: Generator) -> None:
        """Let the workers end and wait for their last figures: locust itself waits half a second for them."""
        if not isinstance(self.runner, MasterRunner):
            return
        alive = {client.id for client in self.runner.clients.all if client.state != STATE_MISSING}
        self.runner.send_message(END_MESSAGE)
        until_s = time.monotonic() + _LAST_FIGURES_S
        while not alive <= generator.finished and time.monotonic() < until_s:
            gevent.sleep(0.1)


def _prepare(environment: Any, **_: Any) -> None:
    generator = environment.isthmus_generator = Generator(environment)
    options = environment.parsed_options
    if options is not None and options.user_classes:
        return
    wanted = ScenarioUser if generator.settings.rate_per_s is None else OpenLoop
    environment.user_classes[:] = [wanted]


events.init.add_listener(_prepare)
