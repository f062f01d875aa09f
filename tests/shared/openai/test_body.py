"""RV-07, RV-09: a body is one strict JSON object or a client error, whatever bytes come."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import InvalidRequest
from shared.openai.body import MAX_DEPTH, parse_object

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
)
_KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=20
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=5), st.booleans())
def test_every_clean_object_is_read_as_written(value: dict[str, Any], escaped: bool) -> None:
    """Texts may hold quotes, colons, braces and backslashes; none of them is taken for a repeated key."""
    assert parse_object(json.dumps(value, ensure_ascii=escaped).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_give_an_object_or_a_client_error(raw: bytes) -> None:
    try:
        assert isinstance(parse_object(raw), dict)
    except InvalidRequest as error:
        assert error.status == 400


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"   ",
        b'{"model": "m", "messages": [',
        b"[]",
        b'"text"',
        b"null",
        b"1",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e400}',
        b'{"a": [1, {"b": -1e400}]}',
        b'{"a": "\\ud83d"}',
        b'{"a": "\\udd80\\ud83e"}',
        b'{"a": "x\\u0000y"}',
        b'{"a": ["x\\u0000y"]}',
        b'{"a\\u0000": 1}',
        b'{"a": "\xff\xfe"}',
        b'{"a": "\xed\xa0\x80"}',
        '{"a": 1}'.encode("utf-16"),
        '{"a": 1}'.encode("utf-16-le"),
        '{"a": 1}'.encode("utf-16-be"),
        '{"a": 1}'.encode("utf-32"),
        b'\xef\xbb\xbf{"a": 1}',
        b'{"a": 1} {"b": 2}',
        b"{'a': 1}",
        b'{"a": 01}',
        b'{"a": 1,}',
    ],
)
def test_what_is_not_one_strict_object_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_object(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model": "a", "model": "b"}',
        b'{"messages": [{"role": "user", "content": "card", "content": "clean"}]}',
        b'{"a": {"b": {"c": 1, "c": 1}}}',
        b'{"a": [{"x": ":", "x": ":"}]}',
        b'{"model": "a", "mod\\u0065l": "b"}',
        b'{"": 1, "": 2}',
    ],
)
def test_a_repeated_key_is_refused_at_every_depth(raw: bytes) -> None:
    """RV-09: two readers of the same bytes must not see different texts."""
    with pytest.raises(InvalidRequest, match="repeats a key"):
        parse_object(raw)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1000, 100_000])
def test_deep_nesting_is_a_client_error(opening: bytes, depth: int) -> None:
    """RV-07: 100,000 opening brackets end neither the process nor its stack."""
    closing = b"]" if opening == b"[" else b"}"
    with pytest.raises(InvalidRequest):
        parse_object(b'{"x":' + opening * depth + b"1" + closing * depth + b"}")
    with pytest.raises(InvalidRequest):
        parse_object(opening * depth)


def test_the_depth_limit_itself_is_allowed() -> None:
    inner = MAX_DEPTH - 1
    assert parse_object(b'{"x":' + b"[" * inner + b"1" + b"]" * inner + b"}")


def test_errors_never_echo_the_body() -> None:
    """LG-01: the canary stands in the text, the key and the number, and in no message."""
    for raw in (
        b'{"canary-7f3a": "canary-7f3a',
        b'{"canary-7f3a": 1, "canary-7f3a": 2}',
        b'{"canary-7f3a": "canary-7f3a\\u0000"}',
        b'"canary-7f3a"',
    ):
        with pytest.raises(InvalidRequest) as caught:
            parse_object(raw)
        assert "canary" not in caught.value.message
