"""Reads the one message that Helm 4 sends as protobuf: a Secret with a release in it (k8s.io/api/core/v1).

Layout: the magic `k8s\\0`, then runtime.Unknown, whose field 2 is the object. Only the fields that matter are read.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

MAGIC = b"k8s\x00"


def secret(message: bytes) -> dict[str, Any]:
    """The Secret as the JSON object that it stands for.

    Raises:
        ValueError: another message, or another wire type than these fields have.
    """
    if not message.startswith(MAGIC):
        raise ValueError("not a Kubernetes protobuf message")
    raw = next(value for number, value in _fields(message[len(MAGIC) :]) if number == 2)
    found: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {}}
    for number, value in _fields(raw):
        if number == 1:
            found["metadata"] = _metadata(value)
        elif number == 2:
            key, content = _entry(value)
            found["data"][key.decode()] = base64.b64encode(content).decode()
        elif number == 3:
            found["type"] = value.decode()
    return found


def _metadata(raw: bytes) -> dict[str, Any]:
    texts = {1: "name", 3: "namespace", 5: "uid", 6: "resourceVersion"}
    maps = {11: "labels", 12: "annotations"}
    found: dict[str, Any] = {}
    for number, value in _fields(raw):
        if number in texts and value:
            found[texts[number]] = value.decode()
        elif number in maps:
            key, content = _entry(value)
            found.setdefault(maps[number], {})[key.decode()] = content.decode()
    return found


def _entry(raw: bytes) -> tuple[bytes, bytes]:
    pair = dict(_fields(raw))
    return pair.get(1, b""), pair.get(2, b"")


def _fields(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each length-delimited field; numbers that are varints are skipped."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        match tag & 7:
            case 0:
                _, at = _varint(raw, at)
            case 2:
                length, at = _varint(raw, at)
                yield tag >> 3, raw[at : at + length]
                at += length
            case other:
                raise ValueError(f"unexpected wire type {other}")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
