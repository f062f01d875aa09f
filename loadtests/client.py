"""Sends one streamed request and times what arrives; works under gevent as well as on threads.

urllib3's `read1` returns as soon as bytes are there, one HTTP chunk at most, so a time stamp taken after it is the
arrival. Clients that fill a buffer first would stamp many tokens with the time of the last one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError

from loadtests.streaming import Failure, Limits, Outcome, StreamMeter

TIER_HEADER = "x-isthmus-tier"


def new_pool(*, connect_s: float, stall_s: float) -> urllib3.PoolManager:
    """A pool of one connection that never retries and never follows a redirect: every fault is seen."""
    timeout = urllib3.Timeout(connect=connect_s, read=stall_s)
    return urllib3.PoolManager(num_pools=1, maxsize=1, retries=False, timeout=timeout)


def send(pool: urllib3.PoolManager, url: str, body: bytes, headers: Mapping[str, str], limits: Limits) -> Outcome:
    """POST `body` to `url` and follow the event stream to its end."""
    started_s = time.monotonic()
    try:
        response = pool.request("POST", url, body=body, headers=headers, preload_content=False)
    except HTTPError as error:
        return Outcome(failure=_failure_of(error), status=None, total_ms=_ms_since(started_s))
    tier = response.headers.get(TIER_HEADER)
    if response.status != 200:
        outcome = Outcome(Failure.STATUS, response.status, total_ms=_ms_since(started_s), tier=tier)
        response.close()
        return outcome
    meter = StreamMeter(started_s=started_s, limits=limits)
    _follow(response, meter)
    outcome = meter.outcome(tier=tier)
    _let_go(response, reuse=outcome.failure is None)
    return outcome


def _follow(response: urllib3.BaseHTTPResponse, meter: StreamMeter) -> None:
    try:
        while not meter.is_over:
            if data := response.read1():
                meter.feed(data, time.monotonic())
            else:
                meter.end(time.monotonic())
    except HTTPError as error:
        meter.end(time.monotonic(), _failure_of(error))


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
