"""What of a caller's trace headers is taken: the recommendation's own examples, and what breaks it."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from shared.tracing.w3c import Carried, read_carried

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"


def _read(traceparent: str | None = VALID, **headers: str | list[str]) -> Carried | None:
    given: CIMultiDict[str] = CIMultiDict()
    if traceparent is not None:
        given.add("Traceparent", traceparent)
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            given.add(name, value)
    return read_carried(CIMultiDictProxy(given))


def test_a_valid_one_is_taken_as_it_is() -> None:
    carried = _read()
    assert carried is not None and carried.sampled
    assert (carried.trace_id, carried.span_id, carried.traceparent) == (TRACE, SPAN, VALID)


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("ff", True)])
def test_only_the_first_flag_means_sampled(flags: str, sampled: bool) -> None:
    carried = _read(f"00-{TRACE}-{SPAN}-{flags}")
    assert carried is not None and carried.sampled is sampled


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    carried = _read(f"cc-{TRACE}-{SPAN}-01-what-comes-then")
    assert carried is not None and carried.traceparent == VALID
    assert _read(f"cc-{TRACE}-{SPAN}-01.what") is None


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        "00",
        VALID + "-",
        VALID + " ",
        VALID + "\n",
        VALID.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}0-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{TRACE[:-1]}\u0661-{SPAN}-01",
    ],
)
def test_what_is_not_valid_is_as_if_unsent(traceparent: str | None) -> None:
    assert _read(traceparent, tracestate="a=1", baggage="b=2") is None


def test_a_repeated_one_is_as_if_unsent() -> None:
    headers = CIMultiDict([("traceparent", VALID), ("traceparent", VALID)])
    assert read_carried(CIMultiDictProxy(headers)) is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (["a=1", "b=2"], "a=1,b=2"),
        ("a=1 , , b=2", "a=1,b=2"),
        ("fw529a3039@dt=x", "fw529a3039@dt=x"),
        ("", None),
        (",,", None),
        ("a", None),
        ("A=1", None),
        ("a=1,a=2", None),
        ("a=b=c", None),
        ("a=\u00e9", None),
        ("a=" + "x" * 257, None),
        ("a=" + "x" * 200 + ",b=" + "y" * 200 + ",c=" + "z" * 200, None),
        (",".join(f"k{i}=1" for i in range(33)), None),
        ("x" * 8000, None),
    ],
)
def test_tracestate_is_kept_or_left_out_by_itself(given: str | list[str], kept: str | None) -> None:
    carried = _read(tracestate=given)
    assert carried is not None and carried.state == kept


def test_baggage_rides_along_within_its_bound() -> None:
    kept, long = _read(baggage=["a=1;p=x", "b=2"]), _read(baggage="a=" + "x" * 8192)
    assert kept is not None and kept.riders == {"baggage": "a=1;p=x,b=2"}
    assert long is not None and long.riders == {}
