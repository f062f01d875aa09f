"""Undoes encodings that hide text inside text: percent signs, HTML entities, `\\u` escapes, base64.

Each decoder yields further views to scan; their spans map to the encoded place in the text as it was sent. Depth is
bounded by the scanner. Base64 is looked into only where it holds text.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from router.privacy.normalise import Span, View, replaced_view

_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_ENTITY = re.compile(r"&#(?:[0-9]{1,7}|[xX][0-9A-Fa-f]{1,6});")
_ESCAPE = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}|x[0-9A-Fa-f]{2})")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_\-=])[A-Za-z0-9+/_\-]{16,}={0,2}")


@dataclass(frozen=True, slots=True)
class Encoding:
    """A trigger for the one-pass database, and the decoder behind it."""

    trigger: bytes
    decode: Callable[[View], Iterator[View]]


def _replacing(pattern: re.Pattern[str], decoded: Callable[[str], str]) -> Callable[[View], Iterator[View]]:
    def replacement(match: re.Match[str]) -> str:
        return decoded(match[0])

    def decode(view: View) -> Iterator[View]:
        if pattern.search(view.text):
            yield replaced_view(view, pattern, replacement)

    return decode


def _percent(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "replace")


def _escape(text: str) -> str:
    code = int(text[2:].strip("{}"), 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _base64(view: View) -> Iterator[View]:
    for match in _BASE64.finditer(view.text):
        text = _text_in(match.group())
        if text:
            yield View(text, _whole(view, match.span()))


def _text_in(encoded: str) -> str | None:
    """The text that `encoded` holds, if it holds text at all."""
    body = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    if len(body) % 4 == 1:
        return None
    try:
        text = base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    head = text[:256]
    return text if sum(c.isprintable() or c.isspace() for c in head) >= 0.9 * len(head) else None


def _whole(view: View, encoded: Span) -> Callable[[Span], Span]:
    """Any finding in decoded base64 stands for the whole encoded word."""

    def to_sent(_: Span) -> Span:
        return view.to_sent(encoded)

    return to_sent


ALL = (
    Encoding(rb"%[0-9A-Fa-f]{2}", _replacing(_PERCENT, _percent)),
    Encoding(rb"&#[0-9xX]", _replacing(_ENTITY, html.unescape)),
    Encoding(rb"\\(?:u[0-9A-Fa-f{]|x[0-9A-Fa-f]{2})", _replacing(_ESCAPE, _escape)),
    Encoding(rb"[A-Za-z0-9+/_\-]{16}", _base64),
)
