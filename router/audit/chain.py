"""Chains audit lines: each carries the code of the one before it and a keyed code over itself.

A line is the record as JSON with `seq` and `prev` in front and `mac` at the end: HMAC-SHA256 over the bytes before
`mac`. Without the key nobody can change, drop, insert or reorder a line unseen. Two sealed files vouch for its ends:
`head` holds the last code, so that a shortened log shows, and `start` the place at which it begins once old files went.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

GENESIS = "0" * 64
_MAC_CHARS = 64
_TAIL_BYTES = len(b',"mac":""}') + _MAC_CHARS


@dataclass(frozen=True, slots=True)
class Link:
    """The end of a chain: sequence number and code of its last line."""

    seq: int = 0
    mac: str = GENESIS


@dataclass(frozen=True, slots=True)
class Fault:
    """The first line that breaks the chain, and how. `expected_seq` is the record that should stand there, `seq` and
    `decision_id` what the line says of itself, as far as it says anything."""

    line: int
    reason: str
    expected_seq: int
    seq: int | None = None
    decision_id: str | None = None


def append(record: Mapping[str, Any], after: Link, key: bytes) -> tuple[bytes, Link]:
    """The line for `record` behind `after`, newline included, and the new end."""
    seq = after.seq + 1
    content = orjson.dumps({"seq": seq, "prev": after.mac, **record})[:-1]
    mac = hmac.digest(key, content, "sha256").hex()
    return content + b',"mac":"' + mac.encode() + b'"}\n', Link(seq, mac)


def end_of(line: bytes) -> Link | None:
    """The link in a line that is taken as it is; None where it is no line of a chain."""
    record = record_of(line)
    return None if record is None else Link(record["seq"], record["mac"])


def record_of(line: bytes) -> dict[str, Any] | None:
    """The record in a line, which may have been changed; None where it is no line of a chain."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or type(value.get("seq")) is not int:
        return None
    return value if isinstance(value.get("mac"), str) and isinstance(value.get("prev"), str) else None


def seal(name: str, link: Link, key: bytes, **more: int) -> bytes:
    """A small file that vouches for a place in the chain: the end of it, or where it begins after old files went."""
    values = {"of": name, "seq": link.seq, "mac": link.mac, **more}
    return orjson.dumps({**values, "seal": _seal_of(values, key)})


def unseal(name: str, data: bytes, key: bytes) -> dict[str, Any] | None:
    """The values of such a file; None where it was not written with this key, or for another purpose."""
    try:
        values = dict(orjson.loads(data))
        given = str(values.pop("seal"))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    if values.get("of") != name or not hmac.compare_digest(given, _seal_of(values, key)):
        return None
    return values


def _seal_of(values: Mapping[str, Any], key: bytes) -> str:
    return hmac.new(key, b"seal" + orjson.dumps(values, option=orjson.OPT_SORT_KEYS), hashlib.sha256).hexdigest()


def follow(
    lines: Iterable[bytes], start: Link, key: bytes, see: Callable[[Mapping[str, Any]], None]
) -> tuple[Link, Fault | None]:
    """Walk `lines` from `start`: the last good link, and the first fault if any. `see` gets each good record."""
    link = start
    for number, line in enumerate(lines, start=1):
        expected = link.seq + 1
        if not line.endswith(b"\n"):
            return link, Fault(number, "the line is torn", expected)
        body = line[:-1]
        record = record_of(body)
        if record is None:
            return link, Fault(number, "not a record", expected)
        mac = hmac.new(key, body[:-_TAIL_BYTES], hashlib.sha256).hexdigest()
        reason = None
        if not hmac.compare_digest(mac, record["mac"]):
            reason = "the record was changed"
        elif record["prev"] != link.mac or record["seq"] != expected:
            reason = "a record before this one is missing or out of order"
        if reason is not None:
            return link, Fault(number, reason, expected, record["seq"], _text(record.get("decision_id")))
        link = Link(record["seq"], mac)
        see(record)
    return link, None


def is_whole(line: bytes, key: bytes) -> bool:
    """Whether one line, newline or not, is as it was written."""
    body = line.rstrip(b"\n")
    record = record_of(body)
    mac = hmac.new(key, body[:-_TAIL_BYTES], hashlib.sha256).hexdigest()
    return record is not None and hmac.compare_digest(mac, record["mac"])


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
