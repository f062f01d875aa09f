"""Sends one request and times what arrives; works under gevent as well as on threads.

urllib3's `read1` returns as soon as bytes are there, one HTTP chunk at most, so a time stamp taken after it is the
arrival. Clients that fill a buffer first would stamp many tokens with the time of the last one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError

from loadtests.streaming import Failure, Limits, Outcome, StreamMeter

TIER_HEADER = "x-isthmus-tier"
_REFUSALS = frozenset({"privacy_unavailable", "blocked_by_policy"})
_COME_AGAIN = frozenset({429, 503})
_LONGEST_WAIT_S = 60.0
"""The official client of OpenAI follows no longer wait."""
_ENVELOPE_BYTES = 64 * 1024


def new_pool(*, connect_s: float, stall_s: float, connections: int = 1) -> urllib3.PoolManager:
    """A pool of so many connections that never retries and never follows a redirect: every fault is seen."""
    timeout = urllib3.Timeout(connect=connect_s, read=stall_s)
    return urllib3.PoolManager(num_pools=1, maxsize=connections, retries=False, timeout=timeout)


def send(
    pool: urllib3.PoolManager,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: Limits,
    *,
    streamed: bool = True,
    due_s: float | None = None,
) -> Outcome:
    """POST `body` to `url` and follow the answer to its end.

    Times count from `due_s`, the monotonic second at which the request was to be sent (None: from now), so that a
    generator that is late makes nothing look faster. A refusal with `Retry-After` is followed as often as `limits` say,
    within the limit of a whole answer: the times of what comes in the end include all of it.
    """
    started_s = time.monotonic() if due_s is None else due_s
    told_to_wait = 0
    while True:
        outcome, wait_s = _attempt(pool, url, body, headers, limits, streamed=streamed, started_s=started_s)
        in_time = wait_s is not None and time.monotonic() + wait_s - started_s < limits.total_s
        if wait_s is None or told_to_wait == limits.retries or not in_time:
            return replace(outcome, told_to_wait=told_to_wait)
        told_to_wait += 1
        time.sleep(wait_s)


def _attempt(
    pool: urllib3.PoolManager,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: Limits,
    *,
    streamed: bool,
    started_s: float,
) -> tuple[Outcome, float | None]:
    """One sending, and after how many seconds the server wants to be asked again."""
    sent_s = time.monotonic()
    try:
        response = pool.request("POST", url, body=body, headers=headers, preload_content=False)
    except HTTPError as error:
        return Outcome(failure=_failure_of(error), status=None, total_ms=_ms_since(started_s)), None
    tier = response.headers.get(TIER_HEADER)
    if response.status != 200:
        return _refusal(response, started_s, tier), _wait_s(response)
    if not streamed:
        return _whole(response, started_s, tier), None
    meter = StreamMeter(started_s=started_s, sent_s=sent_s, limits=limits)
    _follow(response, meter)
    outcome = meter.outcome(tier=tier)
    _let_go(response, reuse=outcome.failure is None)
    return outcome, None


def _wait_s(response: urllib3.BaseHTTPResponse) -> float | None:
    """What a 429 or 503 says of coming again, where the official client of OpenAI would come again."""
    if response.status not in _COME_AGAIN or response.headers.get("x-should-retry") == "false":
        return None
    try:
        wait_s = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return wait_s if 0 < wait_s <= _LONGEST_WAIT_S else None


def _follow(response: urllib3.BaseHTTPResponse, meter: StreamMeter) -> None:
    try:
        while not meter.is_over:
            if data := response.read1():
                meter.feed(data, time.monotonic())
            else:
                meter.end(time.monotonic())
    except HTTPError as error:
        meter.end(time.monotonic(), _failure_of(error))


def _refusal(response: urllib3.BaseHTTPResponse, started_s: float, tier: str | None) -> Outcome:
    """A status that is not 200: which one, and the code that the envelope gives."""
    total_ms = _ms_since(started_s)
    try:
        code = _code_of(response.read(_ENVELOPE_BYTES))
    except HTTPError:
        code = None
    response.close()
    failure = Failure.REFUSED if code in _REFUSALS else Failure.STATUS
    return Outcome(failure, response.status, total_ms=total_ms, tier=tier, code=code)


def _whole(response: urllib3.BaseHTTPResponse, started_s: float, tier: str | None) -> Outcome:
    """An answer that is no stream: an object with `data` or `choices` that hold something."""
    try:
        body = response.read()
    except HTTPError as error:
        response.close()
        return Outcome(_failure_of(error), 200, total_ms=_ms_since(started_s), tier=tier)
    outcome = Outcome(None, 200, total_ms=_ms_since(started_s), tier=tier)
    response.release_conn()
    try:
        value: Any = orjson.loads(body)
        good = isinstance(value, dict) and bool(value.get("data") or value.get("choices"))
    except orjson.JSONDecodeError:
        good = False
    return outcome if good else replace(outcome, failure=Failure.MALFORMED)


def _code_of(body: bytes) -> str | None:
    try:
        code = orjson.loads(body)["error"]["code"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return code if isinstance(code, str) else None


def _let_go(response: urllib3.BaseHTTPResponse, *, reuse: bool) -> None:
    """Keep the connection for the next request if the answer was good and its body is at the end; else close it."""
    try:
        # What follows `[DONE]` is the end of the chunked body, in the same packet or the next one.
        if reuse and not response.read1():
            response.release_conn()
            return
    except HTTPError:
        pass
    response.close()


def _failure_of(error: HTTPError) -> Failure:
    if isinstance(error, NewConnectionError | ConnectTimeoutError):
        return Failure.UNREACHABLE
    return Failure.STALL if isinstance(error, ReadTimeoutError) else Failure.CONNECTION_CUT


def _ms_since(started_s: float) -> float:
    return (time.monotonic() - started_s) * 1000
