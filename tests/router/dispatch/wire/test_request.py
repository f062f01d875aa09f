"""The head of a request: nothing in an address or a header can write a line of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dispatch.wire.address import destination_of
from router.dispatch.wire.errors import Unsendable
from router.dispatch.wire.request import head_of

_FIRST = "POST /v1 HTTP/1.1\r\nHost: h\r\n"


_TEXT = st.text(st.characters(max_codepoint=0xFF), max_size=40)


@given(name=_TEXT, value=_TEXT)
def test_no_header_can_begin_a_line(name: str, value: str) -> None:
    try:
        head = head_of(_FIRST, {name: value, "B": "c"}, 5)
    except Unsendable:
        return
    lines = head.split(b"\r\n")
    assert lines[2:] == [f"{name}: {value}".encode(), b"B: c", b"Content-Length: 5", b"", b""]
    assert b"\n" not in b"".join(lines) and b"\0" not in head


@pytest.mark.parametrize("evil", ["a\r\nX-Evil: 1", "a\nX-Evil: 1", "a\r", "\0", "\x7f", "\ud800"])
def test_what_would_is_refused(evil: str) -> None:
    for headers in ({"X-A": evil}, {evil: "a"}):
        with pytest.raises(Unsendable):
            head_of(_FIRST, headers, 0)


@pytest.mark.parametrize(
    ("url", "host", "port", "is_tls", "lines"),
    [
        ("http://127.0.0.1:8081/v1/x", "127.0.0.1", 8081, False, "POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:8081\r\n"),
        ("https://cloud.example/b/x", "cloud.example", 443, True, "POST /b/x HTTP/1.1\r\nHost: cloud.example\r\n"),
        ("http://[::1]:8081/x", "::1", 8081, False, "POST /x HTTP/1.1\r\nHost: [::1]:8081\r\n"),
        ("http://bü.test/ä b", "xn--b-eha.test", 80, False, "POST /%C3%A4%20b HTTP/1.1\r\nHost: xn--b-eha.test\r\n"),
    ],
)  # fmt: skip
def test_addresses(url: str, host: str, port: int, is_tls: bool, lines: str) -> None:
    found = destination_of(url)
    assert found.origin == (host, port, is_tls)
    assert found.first_lines == lines


@pytest.mark.parametrize(
    "url",
    ["", "nothing", "ftp://h/x", "http://", "http:///x", "http://h:99999/x", "http://u:p@h/x", "http://h/x?a=b",
     "http://h/x#a", "http://h:0/x", "http://[::1/x", "unix:///tmp/s"],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Unsendable):
        destination_of(url)


@given(_TEXT)
def test_no_address_can_begin_a_line(rest: str) -> None:
    try:
        first_lines = destination_of(f"http://h{rest}").first_lines
    except Unsendable:
        return
    first, second, end = first_lines.split("\r\n")
    assert end == "" and first.startswith("POST /") and first.endswith(" HTTP/1.1") and first.count(" ") == 2
    assert second.startswith("Host: ") and first.isascii() and first.isprintable() and second.isprintable()
