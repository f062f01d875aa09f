"""Writes the head of a request; nothing that a header holds can end it and begin another."""

from __future__ import annotations

import re
from collections.abc import Mapping

from router.dispatch.wire.errors import Unsendable

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""What no header may hold (RFC 9110, 5.5): a line's end above all."""


def head_of(first_lines: str, headers: Mapping[str, str], body_bytes: int) -> bytes:
    """The head of a request with a body of that size, as it goes over the wire.

    Raises:
        Unsendable: a name or value holds a control character, or half a surrogate pair.
    """
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if _CONTROL.search("".join(lines)):
        raise Unsendable("A header of the request holds a control character.")
    lines.append(f"Content-Length: {body_bytes}\r\n\r\n")
    try:
        return (first_lines + "\r\n".join(lines)).encode()
    except UnicodeEncodeError:
        raise Unsendable("A header of the request cannot be written.") from None
