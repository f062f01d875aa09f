"""Locust users that ask routers under attack and judge every answer; what they saw is left in a file.

CHAOS_SEED=1 CHAOS_REPORT=FILE CHAOS_HOSTS=URL,URL locust -f tests/simulation/locustfile.py --headless …
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import gevent
import orjson
import urllib3
from locust import User, events, task
from urllib3.exceptions import HTTPError

from tests.simulation.questions import LEFT, Asker, Tally, askers

_CLIENTS = 1_000
_ANSWER_LIMIT_S = 20


class Tenants(User):  # type: ignore[misc]
    """One client each, of all tenants in turn, at all routers in turn."""

    tally: ClassVar[Tally] = Tally()
    left: ClassVar[list[Asker]] = list(askers(_CLIENTS, int(os.environ.get("CHAOS_SEED", "1"))))
    hosts: ClassVar[list[str]] = os.environ.get("CHAOS_HOSTS", "").split(",")

    def on_start(self) -> None:
        self.url = self.hosts[len(self.left) % len(self.hosts)] + "/v1/chat/completions"
        self.asker = self.left.pop(0)
        timeout = urllib3.Timeout(connect=2, read=_ANSWER_LIMIT_S)
        self.pool = urllib3.PoolManager(num_pools=1, maxsize=1, retries=False, timeout=timeout)

    def on_stop(self) -> None:
        self.pool.clear()

    def wait_time(self) -> float:
        return 0.01

    @task  # type: ignore[untyped-decorator]
    def ask(self) -> None:
        asked = self.asker.next()
        try:
            with gevent.Timeout(_ANSWER_LIMIT_S):
                response = self.pool.request(
                    "POST", self.url, body=asked.body(), headers=asked.headers(), preload_content=False
                )
                leaves = asked.leaves and response.status == 200
                received = response.read1() if leaves else response.read()
                response.close() if leaves else response.release_conn()
        except gevent.Timeout:
            self.tally.hung()
        except HTTPError:
            self.tally.ends[LEFT] += 1  # the way to the router broke: that is this client's own trouble
        else:
            self.tally.take(asked, response.status, response.headers.get("x-isthmus-tier"), received)


def _report(**_: Any) -> None:
    if path := os.environ.get("CHAOS_REPORT"):
        Path(path).write_bytes(orjson.dumps(Tenants.tally.plain()))


events.quitting.add_listener(_report)
