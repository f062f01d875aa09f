"""What a person and a program read while `isthmus up` runs."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import pytest

from shared.launcher.console import JsonReporter, Ready, TextReporter, short

READY = Ready(("edge", "router"), "http://127.0.0.1:8080/v1", "m", False, 3.21, Path("/logs"))


def _text(ready: Ready) -> str:
    out = io.StringIO()
    TextReporter(out).ready(ready)
    return out.getvalue()


def test_the_curl_line_is_a_whole_command_with_a_json_body() -> None:
    (line,) = [line for line in _text(READY).splitlines() if "curl" in line]
    words = shlex.split(line)
    assert words[:3] == ["curl", "-s", "http://127.0.0.1:8080/v1/chat/completions"]
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == "m"
    assert "capital of France" in body["messages"][0]["content"]


def test_the_snippet_is_python_that_compiles() -> None:
    for asks_for_key in (False, True):
        ready = Ready(READY.tiers, READY.endpoint, "m", asks_for_key, 1, READY.logs)
        snippet = [line[2:] for line in _text(ready).splitlines() if line.startswith("  ") and "curl" not in line]
        compile("\n".join(snippet), "snippet", "exec")


def test_a_router_with_keys_shows_where_the_key_goes_and_no_key() -> None:
    text = _text(Ready(READY.tiers, READY.endpoint, "m", True, 1, READY.logs))
    assert '"authorization: Bearer $ISTHMUS_API_KEY"' in text
    assert 'os.environ["ISTHMUS_API_KEY"]' in text
    assert "unused" not in text


def test_json_is_one_object_a_line() -> None:
    out = io.StringIO()
    reporter = JsonReporter(out)
    reporter.note("edge", "ready", url="http://x")
    reporter.ready(READY)
    reporter.log_line("edge", b"anything")
    note, ready = [json.loads(line) for line in out.getvalue().splitlines()]
    assert note == {"event": "note", "tier": "edge", "message": "ready", "url": "http://x"}
    assert ready["event"] == "ready"
    assert ready["tiers"] == ["edge", "router"]
    assert ready["endpoint"] == READY.endpoint


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b'{"event": "listening", "level": "info", "port": 1, "timestamp": "x", "component": "y"}', "listening port=1"),
        (b'{"event": "lost", "level": "warning"}', "warning: lost"),
        (b'{"event": "x", "level": "info", "note": null}', "x"),
        (b"error: Port taken", "error: Port taken"),
        (b"(ServeController pid=1) INFO 2026 starting", None),
        (b"2026 ERROR worker died", "2026 ERROR worker died"),
        (b"{not json", None),
        (b"", None),
        (b"error: \x1b[31mred\x07", "error:  [31mred "),
        (b"\xff\xfe", None),
    ],
)  # fmt: skip
def test_a_log_line_in_short(line: bytes, shown: str | None) -> None:
    assert short(line) == shown


def test_control_characters_of_a_log_never_reach_the_terminal() -> None:
    assert "\x1b" not in (short(b'{"event": "a", "level": "info", "name": "\\u001b[2J"}') or "")


def test_the_error_that_ends_a_tier_before_it_was_ready_is_left_to_the_end_of_the_run() -> None:
    out = io.StringIO()
    reporter = TextReporter(out)
    reporter.log_line("edge", b"error: Setting edge.slots: too small.")
    assert out.getvalue() == ""
    reporter.note("edge", "ready after 1.0 s")
    reporter.log_line("edge", b"error: it broke")
    assert "edge   | error: it broke" in out.getvalue()
