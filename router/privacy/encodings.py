"""Undoes encodings that hide text inside text: percent signs, HTML entities, backslashes, base64, hex and the like.

Each decoder yields further views to scan; their spans map to the encoded place in the text as it was sent. Escapes of
all sorts are undone in one step, so that a text has one further view a step and not one for each order of sorts.
Depth is bounded by the scanner. Base64 and hex are looked into only where they hold text.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from router.privacy import json_rows, lists, lookalikes, pages, tables, wrapped
from router.privacy.normalise import Span, View, replaced_view
from router.privacy.recognisers.nearby import triggers_of
from router.privacy.written_out import NAMING

_NAMES = (
    "lt|gt|apos|commat|period|shy|zwj|zwnj|lrm|rlm|nbsp|ensp|emsp|thinsp|hyphen|dash|ndash|mdash|colon|sol|num|amp|quot"
    "|lowbar|plus|equals"
)
_ESCAPED = re.compile(
    r"(?P<percent>(?:%[0-9A-Fa-f]{2})+)"
    rf"|(?P<entity>&(?:#(?:0{{0,64}}[0-9]{{1,7}}|[xX]0{{0,64}}[0-9A-Fa-f]{{1,6}})|{_NAMES});)"
    r"|\\{1,8}(?:(?P<escape>u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}|U000[0-9A-Fa-f]{5}|x[0-9A-Fa-f]{2})"
    r"|(?P<white>[nrtfv])|(?P<sign>[/_*-]))"
    r"|(?P<quoted>(?:=[0-9A-F]{2}){2,})"
)
"""A white character of a log or of JSON that was pasted, and a sign that PHP or Markdown escapes, are among them: the
letter or the backslash would be glued to what stands there."""
_WHITE = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{16,}(?:\r?\n[A-Za-z0-9+/_\-]{4,})*(?:\r?\n[A-Za-z0-9+/_\-]{1,3}(?==))?={0,6}"
)
"""One word, or the lines of a block. Its last line may be short where signs fill it up."""
_BASE32 = re.compile(r"[A-Z2-7]{16,}")
_PAIRED = re.compile(rb"(?:[ -~\s]|[\xa1-\xf7][\xa1-\xfe])+")
_PLAIN_BYTES = re.compile(rb"[ 0-9A-Za-z]")
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f\x81\x8d\x8f\x90\x9d]")
_GLUE = tuple(re.compile(rf"[^{signs}\s=]{{16,}}={{0,2}}") for signs in ("/", r"\-_", r"+/\-_"))
"""Signs of the alphabet that may also part a word from what stands before or behind it, as in a path or an id."""
_HEX_BYTE = (
    r"(?:[2-7][0-9A-Fa-f]|0[9AaDd]|(?:[Cc][2-9A-Fa-f]|[Dd][0-9A-Fa-f])[ :,]?[89ABab][0-9A-Fa-f]"
    r"|(?:[Ee][0-9A-Fa-f]|[Ff][0-4][ :,]?[89ABab][0-9A-Fa-f])(?:[ :,]?[89ABab][0-9A-Fa-f]){2})[ :,]?"
)
"""A character of UTF-8 that text may hold."""
_HEX = re.compile(rf"(?<![0-9A-Za-z])(?:0x)?(?:{_HEX_BYTE}){{8,}}(?![0-9A-Za-z])")
_HEX_JOINTS = re.compile(r"0x|[ :,]")
_LINE_ENDS = re.compile(r"\r?\n")
_MEDIA = re.compile(
    r"data:(?!text/)[a-z]+/[A-Za-z0-9.+\-]{1,64}(?:;[a-z]+=[A-Za-z0-9\-]{1,32})?;base64,(?P<head>[A-Za-z0-9+/_\-]{64})"
)
_FILES = (
    *("JVBERi0", "iVBORw0KGgo", "/9j/4", "/9j/2", "R0lGODdh", "R0lGODlh", "SUkqA", "TU0AK"),  # PDF and pictures
    *("UEsDB", "H4sIA", "N3q8ry", "UmFyIRoH", "/Td6WFo", "QlpoO", "KLUv/"),  # archives, and documents that are one
    *("0M8R4KGx", "T2dnUw", "SUQzA", "SUQzB", "ZkxhQ", "GkXfo"),  # older office documents, sound, films
)
"""How files begin that hold bytes and no text, in base64 (the magic numbers of file(1))."""
_LEAST_FILE = 64
"""A shorter word may be the mark of a sort of file, and holds nothing."""
MEDIA_TRIGGER = rb";base64,[A-Za-z0-9+/_\-]{64}"
NAMING_TRIGGERS = tuple(triggers_of(NAMING))
"""Words that say what values are. None stands for those of other scripts, which any text that is not ASCII may hold."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Triggers for the one-pass database, and the decoder behind them: the views that it finds, and None for what it
    cannot read."""

    triggers: tuple[bytes, ...]
    decode: Callable[[View], Iterator[View | None]]
    of_named: bool = False
    """It finds something only where the text may have a word that says what values are (`NAMING_TRIGGERS`)."""
    is_layout: bool = False
    """It hides nothing: a page with a table of lists is as deep as plain text."""


def holds_media(text: str) -> bool:
    """Whether a data URL in `text` carries a picture, sound or file, which no text scanner reads."""
    return any(_text_in(match["head"]) is None for match in _MEDIA.finditer(text))


def _unescaped(view: View) -> Iterator[View]:
    if _ESCAPED.search(view.text):
        yield replaced_view(view, _ESCAPED, _plain)


def _plain(match: re.Match[str]) -> str:
    if match["percent"]:
        return unquote_to_bytes(match["percent"]).decode("utf-8", "replace")
    if match["entity"]:
        return html.unescape(match["entity"])
    if match["quoted"]:
        return bytes.fromhex(match["quoted"].replace("=", "")).decode("utf-8", "replace")
    if match["white"]:
        return _WHITE[match["white"]]
    if match["sign"]:
        return match["sign"]
    code = int(match["escape"][1:].strip("{}"), 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _base64(view: View) -> Iterator[View | None]:
    for match in _BASE64.finditer(view.text):
        word = _LINE_ENDS.sub("", match.group())
        text = _text_in(word) or _base32(word)
        if text:
            yield View(text, _whole(view, match.span()))
        elif len(word) >= _LEAST_FILE and word.replace("-", "+").replace("_", "/").startswith(_FILES):
            yield None
        else:
            pieces = list(_base64_pieces(view, match.span()))
            yield from pieces or _base64_of_older(view, match.span(), word)


def _base64_pieces(view: View, word: Span) -> Iterator[View]:
    """What pieces of a word hold that is no base64 as a whole, because something is glued to it."""
    seen: set[Span] = {word}
    for piece in _GLUE:
        for match in piece.finditer(view.text, *word):
            if match.span() not in seen:
                seen.add(match.span())
                text = _text_in(match.group()) or _base32(match.group())
                if text:
                    yield View(text, _whole(view, match.span()))


def _base64_of_older(view: View, place: Span, word: str) -> Iterator[View]:
    """What a word holds in a charset before Unicode. Asked last: a few bytes beside text would pass for some."""
    raw = _bytes_in(word)
    text = _as_older_text(raw) if raw else None
    if text:
        yield View(text, _whole(view, place))


def _text_in(encoded: str) -> str | None:
    """The text that `encoded` holds, if it holds text at all."""
    raw = _bytes_in(encoded)
    return None if raw is None else _as_text(raw)


def _bytes_in(encoded: str) -> bytes | None:
    body = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    if len(body) % 4 == 1:
        return None
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4))
    except binascii.Error:
        return None


def _base32(word: str) -> str | None:
    """The text that a word of the smaller alphabet holds, if it holds text at all."""
    body = word.rstrip("=")
    body = body.upper() if body.islower() else body
    if not _BASE32.fullmatch(body):
        return None
    try:
        return _as_text(base64.b32decode(body + "=" * (-len(body) % 8)))
    except binascii.Error:
        return None


def _as_text(raw: bytes) -> str | None:
    """UTF-8, or UTF-16 where every other byte is zero, as it is for Latin text and digits."""
    zeros = b"\0\0\0\0"
    charset = "utf-16-le" if raw[1:8:2] == zeros else "utf-16-be" if raw[0:8:2] == zeros else "utf-8"
    try:
        text = raw.decode(charset)
    except UnicodeDecodeError:
        return None
    head = text[:256]
    return text if sum(c.isprintable() or c.isspace() for c in head) >= 0.9 * len(head) else None


def _as_older_text(raw: bytes) -> str | None:
    """Text of a charset before Unicode, whose letters and digits of ASCII are its own. Others are read as those of the
    two that are met most; which of its kind it was matters to no recogniser of numbers and addresses."""
    if _PAIRED.fullmatch(raw):
        return raw.decode("gbk", "replace")
    if len(_PLAIN_BYTES.findall(raw)) >= len(raw) / 2 and not _CONTROL_BYTES.search(raw):
        return raw.decode("cp1252", "replace")
    return None


def _hex(view: View) -> Iterator[View]:
    for match in _HEX.finditer(view.text):
        digits = _HEX_JOINTS.sub("", match.group())
        if len(digits) % 2 == 0:
            yield View(bytes.fromhex(digits).decode("utf-8", "replace"), _whole(view, match.span()))


def _whole(view: View, encoded: Span) -> Callable[[Span], Span]:
    """Any finding in a decoded block stands for the whole encoded block."""

    def to_sent(_: Span) -> Span:
        return view.to_sent(encoded)

    return to_sent


ALL = (
    Encoding(
        (
            rb"%[0-9A-Fa-f]{2}",
            rb"&(?:#[0-9xX]|[a-z]{2,6};)",
            rb"\\(?:u[0-9A-Fa-f{]|U000|x[0-9A-Fa-f]{2}|[nrtfv/_*-])",
            rb"(?:=[0-9A-F]{2}){2}",
        ),
        _unescaped,
    ),
    Encoding((rb"[A-Za-z0-9+/_\-]{16}",), _base64),
    Encoding(((rf"(?:{_HEX_BYTE}){{8}}").encode(),), _hex),
    Encoding(pages.TRIGGERS, pages.as_shown, is_layout=True),
    Encoding(json_rows.TRIGGERS, json_rows.as_lines, of_named=True, is_layout=True),
    Encoding(lookalikes.TRIGGERS, lookalikes.latin, is_layout=True),
    Encoding(wrapped.TRIGGERS, wrapped.joined, is_layout=True),
    Encoding(tables.TRIGGERS, tables.named_cells, is_layout=True),
    Encoding(lists.TRIGGERS, lists.named_items, of_named=True, is_layout=True),
)
"""Layouts stand in the order in which one holds another: a page a table, a table's cell a list."""
