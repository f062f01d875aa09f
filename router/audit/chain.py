"""Chains audit lines: each carries the code of the one before it and a keyed code over itself.

A line is the record as JSON with `seq` and `prev` in front and `mac` at the end: HMAC-SHA256 over the bytes before
`mac`. Without the key nobody can change, drop, insert or reorder a line unseen; a shortened log shows against the
`head` file, which holds the last code.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
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
    """The first line that breaks the chain, and how."""

    line: int
    reason: str


def append(record: Mapping[str, Any], after: Link, key: bytes) -> tuple[bytes, Link]:
    """The line for `record` behind `after`, newline included, and the new end."""
    seq = after.seq + 1
    content = orjson.dumps({"seq": seq, "prev": after.mac, **record})[:-1]
    mac = hmac.new(key, content, hashlib.sha256).hexdigest()
    return content + b',"mac":"' + mac.encode() + b'"}\n', Link(seq, mac)


def end_of(line: bytes) -> Link | None:
    """The link in a line that is taken as it is; None where it is no line of a chain."""
    try:
        value = orjson.loads(line)
        return Link(int(value["seq"]), str(value["mac"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def follow(lines: Iterable[bytes], start: Link, key: bytes) -> tuple[Link, Fault | None]:
    """Walk `lines` from `start`: the last good link, and the first fault if there is one."""
    link = start
    for number, line in enumerate(lines, start=1):
        reason = _fault_of(line, link, key)
        if reason is not None:
            return link, Fault(number, reason)
        found = end_of(line)
        link = found or link
    return link, None


def _fault_of(line: bytes, before: Link, key: bytes) -> str | None:
    if not line.endswith(b"\n"):
        return "the line is torn"
    body = line.rstrip(b"\n")
    found = end_of(body)
    if found is None:
        return "not a record"
    mac = hmac.new(key, body[:-_TAIL_BYTES], hashlib.sha256).hexdigest()
    if not hmac.compare_digest(mac, found.mac):
        return "the record was changed"
    if orjson.loads(body)["prev"] != before.mac or found.seq != before.seq + 1:
        return "a record before this one is missing or out of order"
    return None
