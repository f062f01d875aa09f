"""An answer out of bytes: the same however they are cut, never taken for whole too early, and bounded in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dispatch.wire.answer import MOST_HEAD_BYTES, MOST_HELD_BYTES, Answer
from router.dispatch.wire.errors import Cut, TooLong

_T = TypeVar("_T")
_OK = b"HTTP/1.1 200 OK\r\n"


class FakeLine:
    """Notes what an answer does with its connection."""

    def __init__(self) -> None:
        self.can_write = True
        self.written = b""
        self.held = False
        self.parted: bool | None = None

    def write(self, data: bytes | memoryview) -> None:
        self.written += bytes(data)

    def hold(self) -> None:
        self.held = True

    def go_on(self) -> None:
        self.held = False

    def part(self, *, reusable: bool) -> None:
        assert self.parted is None, "parted twice"
        self.parted = reusable


class Case(NamedTuple):
    """Bytes of a whole answer, and what is in them. `ends_by_close`: only the end of the connection ends it."""

    raw: bytes
    status: int
    body: bytes
    keeps: bool = True
    ends_by_close: bool = False


CASES = {
    "length": Case(_OK + b"Content-Length: 5\r\nX-A: b\r\n\r\nhello", 200, b"hello"),
    "nothing": Case(_OK + b"Content-Length: 0\r\n\r\n", 200, b""),
    "no content": Case(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "chunks": Case(_OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", 200, b"hello"),
    "extensions and trailers": Case(
        _OK + b'transfer-encoding: Chunked\r\n\r\n5;a="b"\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n', 200, b"hello"
    ),
    "until the end": Case(_OK + b"Content-Type: text/plain\r\n\r\nhello", 200, b"hello", False, True),
    "HTTP/1.0": Case(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", False),
    "says that it closes": Case(_OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", False),
    "continue first": Case(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}",
        503,
        b"{}",
    ),
    "looks like an answer": Case(_OK + b"Content-Length: 19\r\n\r\n" + _OK + b"\r\n", 200, _OK + b"\r\n"),
}


def at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of what must not have to wait."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise AssertionError("it waits")


def new_answer(unsent: memoryview | None = None) -> tuple[Answer, FakeLine]:
    line = FakeLine()
    return Answer(line, _NO_LOOP, unsent), line


class _NoLoop:
    """For answers that never have to wait."""

    def create_future(self) -> None:
        raise AssertionError("it waits")


_NO_LOOP = cast(asyncio.AbstractEventLoop, _NoLoop())


def read_all(answer: Answer) -> bytes:
    at_once(answer.begun())
    return at_once(answer.whole(1 << 20))


@pytest.mark.parametrize("name", CASES)
@given(cuts=st.lists(st.integers(0, 200), max_size=12))
def test_the_body_is_the_same_however_the_bytes_are_cut(name: str, cuts: list[int]) -> None:
    """SSE-01: also in the middle of a head, of a chunk's size, or of a line's end."""
    case = CASES[name]
    answer, line = new_answer()
    at = sorted({0, *(cut for cut in cuts if cut < len(case.raw)), len(case.raw)})
    for start, end in pairwise(at):
        answer.take(case.raw[start:end])
    if case.ends_by_close:
        assert not answer.ended
        answer.lost(None)
    assert answer.ended and answer.status == case.status
    assert read_all(answer) == case.body
    assert at_once(answer.read()) == b""
    answer.release()
    assert line.parted is (None if case.ends_by_close else case.keeps)


@pytest.mark.parametrize("name", CASES)
def test_a_cut_answer_is_never_whole(name: str) -> None:
    """FO-01: at no byte does a connection that breaks make an answer that looks finished."""
    case = CASES[name]
    head = case.raw.index(b"\r\n\r\n") + 4
    for size in range(len(case.raw)):
        if case.ends_by_close and size >= head:
            continue  # there the end of the connection is all that says how long it is
        answer, line = new_answer()
        answer.take(case.raw[:size]) if size else None
        answer.lost(None)
        assert not answer.ended
        with pytest.raises(Cut):
            read_all(answer)
        answer.release()
        assert line.parted is None


def test_a_broken_connection_ends_no_answer_that_the_end_would_have_ended() -> None:
    answer, _ = new_answer()
    answer.take(CASES["until the end"].raw)
    answer.lost(ConnectionResetError())
    at_once(answer.begun())
    assert at_once(answer.read()) == b"hello"
    with pytest.raises(Cut):
        at_once(answer.read())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.keeps])
@given(rubbish=st.one_of(st.binary(min_size=1, max_size=40), st.just(CASES["length"].raw)), together=st.booleans())
def test_what_comes_after_an_answer_is_no_part_of_it_and_spoils_the_connection(
    name: str, rubbish: bytes, together: bool
) -> None:
    """MT-01: bytes that nobody asked for must not be there for the next one who asks."""
    case = CASES[name]
    if not rubbish.strip(b"\r\n"):
        rubbish += b"x"
    answer, line = new_answer()
    for data in (case.raw + rubbish,) if together else (case.raw, rubbish):
        answer.take(data)
    assert read_all(answer) == case.body
    answer.release()
    assert line.parted is False


NO_ANSWERS = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    "a status that is none": b"HTTP/1.1 050 Odd\r\nContent-Length: 0\r\n\r\n",
    "two lengths": _OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length and chunks": _OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding that was not offered": _OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a negative length": _OK + b"Content-Length: -5\r\n\r\nhello",
    "a size that is none": _OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "a header without a colon": _OK + b"Content-Length\r\n\r\n",
    "a line that ends early": _OK + b"X-A: b\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_what_is_no_http_ends_the_connection(name: str) -> None:
    answer, line = new_answer()
    answer.take(NO_ANSWERS[name])
    answer.lost(None)
    with pytest.raises(Cut):
        read_all(answer)
    assert not line.parted
    answer.release()


FLOODS = {
    "headers": (_OK, b"X-A: b\r\n"),
    "one header": (_OK + b"X-A: ", b"b" * 999),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "trailers": (_OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: b\r\n"),
    "one trailer": (_OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: ", b"b" * 999),
    "a chunk's extension": (_OK + b"Transfer-Encoding: chunked\r\n\r\n5;a=", b"b" * 999),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_anything_but_content_ends(kind: str) -> None:
    """A backend's head does not grow memory: it is cut within twice the limit."""
    begin, more = FLOODS[kind]
    answer, line = new_answer()
    sent = len(begin)
    if begin:
        answer.take(begin)
    while line.parted is None:
        answer.take(more)
        sent += len(more)
        assert sent < 2 * MOST_HEAD_BYTES + len(begin)
    assert line.parted is False
    with pytest.raises(Cut):
        read_all(answer)


def test_a_slow_reader_holds_the_connection() -> None:
    """What nobody reads stays with the backend."""
    answer, line = new_answer()
    answer.take(_OK + b"Content-Length: 10000000\r\n\r\n")
    sent = 0
    while not line.held:
        answer.take(b"x" * 1000)
        sent += 1000
    assert sent <= MOST_HELD_BYTES + 1000
    assert len(at_once(answer.read())) == sent
    assert not line.held


def test_a_limit_on_the_body() -> None:
    answer, line = new_answer()
    answer.take(_OK + b"Content-Length: 10\r\n\r\n0123456789")
    at_once(answer.begun())
    assert at_once(answer.whole(10)) == b"0123456789"
    answer, line = new_answer()
    answer.take(_OK + b"Content-Length: 20\r\n\r\n0123456789")
    with pytest.raises(TooLong):
        at_once(answer.whole(9))
    assert line.parted is False


def test_an_answer_before_all_was_sent_ends_the_connection() -> None:
    """An early error: the rest of the request is not wanted, and must not stand before the next one."""
    answer, line = new_answer(memoryview(b"the rest"))
    answer.take(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    assert read_all(answer) == b"" and answer.status == 413
    assert line.written == b""
    answer.release()
    assert line.parted is False


@pytest.mark.parametrize("moment", ["before the head", "before the end"])
def test_whoever_lets_go_early_ends_the_connection(moment: str) -> None:
    answer, line = new_answer()
    if moment == "before the end":
        answer.take(_OK + b"Content-Length: 5\r\n\r\nhell")
    answer.release()
    answer.release()
    assert line.parted is False
    answer.take(b"o")  # what was on its way already
    assert not answer.ended


def test_an_answer_that_was_ended_says_why_and_gives_what_it_has() -> None:
    class Reason(Exception):
        pass

    answer, line = new_answer()
    answer.take(_OK + b"Content-Length: 10\r\n\r\nhello")
    answer.fail(Reason())
    assert line.parted is False
    assert at_once(answer.read()) == b"hello"
    with pytest.raises(Reason):
        at_once(answer.read())


def test_the_first_of_equal_headers_counts_and_trailers_do_not() -> None:
    answer, _ = new_answer()
    answer.take(_OK + b"retry-after:  7 \r\nRetry-After: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Late: 1\r\n\r\n")
    assert answer.header("retry-after") == "7" and answer.header("x-late") is None
