"""What is written on a connection from a replica to an ingress: a greeting, then events of many streams by turns.

A frame is eight bytes of stream number, four of length, then that many bytes; both numbers are big-endian and unsigned.
A frame without bytes ends its stream: events are never empty. Stream 0 is nobody's: its frames only show that the
replica is alive. What comes back is the number of each stream that nobody reads. Nothing read here is unpickled or
evaluated.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator

GREETING_BYTES = 32
NUMBER_BYTES = 8
MAX_EVENT_BYTES = 64 * 1024 * 1024
"""More than any event of an engine; what announces more is no replica."""
_HEAD = struct.Struct("!QI")


class Malformed(Exception):
    """Whoever writes is no replica that was called by this ingress."""


def frame(stream: int, event: bytes) -> bytes:
    """One event of `stream`, or its end where `event` is empty."""
    return _HEAD.pack(stream, len(event)) + event


SIGN_OF_LIFE = frame(0, b"")


class Reader:
    """Cuts what arrives into frames, however it was cut on the way; the greeting stands before the first."""

    def __init__(self, greeting: bytes) -> None:
        self._greeting = greeting
        self._held = bytearray()
        self.greeted = False
        """Whether the writer has shown that it was called by this ingress."""

    def feed(self, arrived: bytes) -> Iterator[tuple[int, bytes]]:
        """Frames that are whole now, as stream and event.

        Raises:
            Malformed: the greeting is wrong, or an event is larger than any can be.
        """
        held = self._held
        held += arrived
        at = 0
        if not self.greeted:
            if len(held) < GREETING_BYTES:
                return
            if not hmac.compare_digest(bytes(held[:GREETING_BYTES]), self._greeting):
                raise Malformed
            self.greeted, at = True, GREETING_BYTES
        while len(held) - at >= _HEAD.size:
            stream, length = _HEAD.unpack_from(held, at)
            if length > MAX_EVENT_BYTES:
                raise Malformed
            if len(held) - at - _HEAD.size < length:
                break
            at += _HEAD.size
            yield stream, bytes(held[at : at + length])
            at += length
        del held[:at]
