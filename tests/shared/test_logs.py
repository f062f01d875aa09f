"""LG-01: whatever a program logs, neither a prompt nor a key is in it."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from shared import logs

CANARY = "canary-b7c9-prompt"


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure(level="debug", stream=stream)
    yield stream
    structlog.reset_defaults()
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)


def _events(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_component_level_and_time(out: io.StringIO) -> None:
    logs.get("router").info("listening", port=8080)
    (event,) = _events(out)
    assert event["component"] == "router"
    assert event["event"] == "listening"
    assert event["level"] == "info"
    assert event["port"] == 8080
    assert event["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    "name",
    [
        "prompt",
        "messages",
        "content",
        "text",
        "body",
        "authorization",
        "api_key",
        "key",
        "token",
        "secret",
        "password",
        "headers",
        "value",
        "match",
        "Authorization",
    ],
)
def test_lg_01_fields_that_could_hold_content_are_emptied(out: io.StringIO, name: str) -> None:
    logs.get("x").warning("event", **{name: CANARY})
    logs.get("x").warning("event", request={"inner": {name: [CANARY]}}, list=[{name: CANARY}])
    assert CANARY not in out.getvalue()
    assert out.getvalue().count(logs.REDACTED) == 3


def test_lg_01_an_exception_is_its_type_and_place(out: io.StringIO) -> None:
    def fail(prompt: str) -> None:
        raise ValueError(prompt)

    try:
        fail(CANARY)
    except ValueError as error:
        logs.get("x").exception("failed")
        logs.get("x").error("failed", exc_info=error)
    assert CANARY not in out.getvalue()
    for event in _events(out):
        assert event["exception"] == "ValueError"
        assert "test_logs.py" in event["at"][-1]
        assert event["at"][-1].endswith(" fail")


def test_lg_01_a_chained_exception_shows_no_cause(out: io.StringIO) -> None:
    try:
        try:
            raise KeyError(CANARY)
        except KeyError as error:
            raise RuntimeError(CANARY) from error
    except RuntimeError:
        logs.get("x").exception("failed")
    assert CANARY not in out.getvalue()


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR])
def test_lg_01_library_records_keep_their_template_and_lose_their_data(out: io.StringIO, level: int) -> None:
    library = logging.getLogger("some.library")
    library.log(level, "bad request %s from %s", CANARY, CANARY)
    library.log(level, f"bad request {CANARY}")
    try:
        raise ValueError(CANARY)
    except ValueError:
        library.log(level, f"failed {CANARY}", exc_info=True)
    assert CANARY not in out.getvalue()
    first, second, third = _events(out)
    assert first["template"] == "bad request %s from %s"
    assert "template" not in second
    assert third["exception"] == "ValueError"
    assert all("test_logs.py" in event["from"] for event in (first, second, third))


def test_lg_01_debug_level_does_not_open_libraries(out: io.StringIO) -> None:
    """They print request lines and payloads there."""
    logging.getLogger("aiohttp.client").debug("sending %s", CANARY)
    logging.getLogger("asyncio").info("using %s", CANARY)
    logs.get("x").debug("ours")
    assert [event["event"] for event in _events(out)] == ["ours"]


def test_the_level_holds_for_our_events() -> None:
    out = io.StringIO()
    logs.configure(level="warning", stream=out)
    logs.get("x").info("quiet")
    logs.get("x").warning("loud")
    assert [event["event"] for event in _events(out)] == ["loud"]


def test_the_default_stream_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(stream=sys.stderr)
    logs.get("x").info("here")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "here" in captured.err
