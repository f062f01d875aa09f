"""Sends one prompt of the demo and observes the answer: decision headers, speed, text."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import aiohttp
import orjson

from loadtests import prompts
from loadtests.demo.expectations import Observed, Row
from loadtests.streaming import Failure, Limits, StreamMeter
from shared.openai.sse import EventCutter

LIMITS = Limits(stall_s=60.0, total_s=180.0)


async def ask(http: aiohttp.ClientSession, base_url: str, model: str, row: Row) -> Observed:
    """POST the row's prompt to the router at `base_url`; a broken connection is an observation too."""
    body = orjson.dumps(prompts.chat(row.prompt, model=model, max_tokens=row.max_tokens))
    headers = {"Content-Type": "application/json"} | ({"x-isthmus-route": row.route} if row.route else {})
    started_s = time.monotonic()
    try:
        async with http.post(f"{base_url}/v1/chat/completions", data=body, headers=headers) as response:
            if response.status != 200:
                return _refused(response, await response.read())
            return await _answered(response, StreamMeter(started_s=started_s, limits=LIMITS))
    except (aiohttp.ClientError, TimeoutError, OSError):
        return Observed(status=0, failure=str(Failure.UNREACHABLE))


async def _answered(response: aiohttp.ClientResponse, meter: StreamMeter) -> Observed:
    cutter, text = EventCutter(), []
    try:
        while not meter.is_over:
            if data := await response.content.readany():
                meter.feed(data, time.monotonic())
                text += [text_of(event) for event in cutter.feed(data)]
            else:
                meter.end(time.monotonic())
    except TimeoutError:
        meter.end(time.monotonic(), Failure.STALL)
    except (aiohttp.ClientError, OSError):
        meter.end(time.monotonic(), Failure.CONNECTION_CUT)
    outcome = meter.outcome()
    return replace(
        _observed(response),
        failure=None if outcome.failure is None else str(outcome.failure),
        ttft_ms=outcome.ttft_ms,
        tokens_per_s=1000 / outcome.tpot_ms if outcome.tpot_ms else None,
        text="".join(text),
    )


def _refused(response: aiohttp.ClientResponse, body: bytes) -> Observed:
    try:
        code = orjson.loads(body)["error"]["code"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        code = None
    return replace(_observed(response), code=code)


def _observed(response: aiohttp.ClientResponse) -> Observed:
    """Status and decision headers."""
    return Observed(
        status=response.status,
        privacy_class=response.headers.get("x-isthmus-class"),
        tier=response.headers.get("x-isthmus-tier"),
        reason=response.headers.get("x-isthmus-reason"),
    )


def text_of(event: bytes) -> str:
    """The content that one whole event adds to the answer."""
    try:
        value: Any = orjson.loads(event.removeprefix(b"data:"))
        return "".join(choice["delta"].get("content") or "" for choice in value["choices"])
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return ""
