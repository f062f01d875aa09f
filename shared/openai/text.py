"""Every text of a body, with its position: what a scanner must see before a byte may leave.

The walk is generic on purpose. It visits each string, number and key wherever it stands, so a field that nobody
thought of cannot carry text past the scanner. Adjacent texts are joined as a reader would join them, so that a
number cut over two parts or two messages is still one number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from shared.openai.fields import FIELD_SIGN, named_pair, named_values
from shared.openai.pieces import Pieces
from shared.openai.seams import GLUED_CHARS, SEAM_CHARS, joined, readings
from shared.openai.spoken import is_of_tool, is_of_user, pieces_of, turns_of

MAX_NESTED_JSON = 3
_FIELD_NAME = re.compile(r"(?:[A-Za-z_]{1,19}|[a-z]{1,12}(?:_[a-z]{1,12}){1,6})\Z")
"""Keys that a position shows. A longer one without words of usual length could be a token."""
_FRACTION = re.compile(rb"(?<![0-9.])([0-9]{1,400}(?:\.[0-9]{1,400})?)(?:[eE][+-]?[0-9]{1,4})?(?![0-9.])")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_MIN_FRACTION_DIGITS = 12
_MIN_FRACTION_CHARS = 10
"""A number with so many digits is no shorter once it is parsed."""
_MIN_SIBLING_CHARS = 12
_MIN_NAMED_NUMBER = 100_000
"""Smaller numbers are none that a key such as `phone` or `tax_id` could name."""
_DIGIT = re.compile(r"[0-9]")
_OPENS_JSON = frozenset({"{", "[", '"'})
_STRUCTURE = frozenset(
    {
        "role",
        "content",
        "type",
        "text",
        "name",
        "model",
        "id",
        "tool_call_id",
        "arguments",
        "description",
        "url",
        "refusal",
    }
)
"""Keys of the API itself, which say nothing of the value behind them; any other may, as in `{"ssn": "…"}`."""
_TURNS = re.compile(r"(?:messages|input)(?:\[[0-9]+\]\.content)?")
"""Lists of turns and what each consists of: they are joined with care for who speaks."""
_USUAL = _STRUCTURE | {
    "messages", "prompt", "suffix", "input", "stream", "stream_options", "include_usage", "temperature", "top_p", "n",
    "seed", "stop", "user", "metadata", "max_tokens", "max_completion_tokens", "tools", "tool_choice", "tool_calls",
    "function", "parameters", "properties", "required", "items", "enum", "strict", "additionalProperties",
    "response_format", "json_schema", "schema", "image_url", "input_audio", "file",
}  # fmt: skip
"""Keys that nobody has to read again. Any other is a text too: it may be a token, or a word of the operator's list."""


class TextPosition(NamedTuple):
    """A text of the body and where it stands, such as `messages[0].content`.

    A text joined from several carries `seams`, the offsets where a next one begins; spans count in the joined text.
    What stands inside one of them was mostly found there already; what crosses a seam was not.
    """

    position: str
    text: str
    seams: tuple[int, ...] = ()

    def is_within_one(self, start: int, end: int) -> bool:
        """Whether `[start, end)` lies in one of several joined texts, which is yielded by itself too."""
        return bool(self.seams) and not any(start < seam < end for seam in self.seams)


def texts_of(body: dict[str, Any], raw: bytes = b"") -> Iterator[TextPosition]:
    """Yield each text of `body` in document order, then what texts say together that none says alone. `raw` is the
    JSON that travels: what its numbers look like there, parsing may have rounded away."""
    seen = _Seen()
    yield from _walk(body, "", MAX_NESTED_JSON, seen)
    if seen.names:
        yield TextPosition("*", "\n".join(seen.names))
    yield from _joined(body)
    for first, second in seen.pieces.pairs():
        yield from _together("*", [first, second])
    if seen.has_fraction:
        yield from _fractions(raw)


@dataclass(slots=True)
class _Seen:
    """What the walk over a body meets on its way."""

    names: dict[str, None] = field(default_factory=dict)
    pieces: Pieces = field(default_factory=Pieces)
    has_fraction: bool = False


def _fractions(raw: bytes) -> Iterator[TextPosition]:
    """The digits of numbers that are written with a point or an exponent, and are long enough to hold another."""
    for match in _FRACTION.finditer(_STRING.sub(b'""', raw)):
        digits = match[1].replace(b".", b"").lstrip(b"0").decode()
        if not match[0].isdigit() and len(digits) >= _MIN_FRACTION_DIGITS:
            yield from (TextPosition("*", text) for text in dict.fromkeys((digits, digits.rstrip("0"))))


def _walk(node: Any, position: str, nested: int, seen: _Seen) -> Iterator[TextPosition]:
    if isinstance(node, str):
        if node:
            seen.pieces.note(position.rpartition(".")[2], node)
            yield TextPosition(position, node)
        yield from _nested(node, position, nested, seen)
    elif isinstance(node, dict):
        if not node.keys() <= _USUAL:
            seen.names.update((key, None) for key in node if key not in _USUAL and _FIELD_NAME.match(key))
        for key, value in node.items():
            # A key can itself be text that someone typed: only plain field names appear in a position.
            name = key if key in _USUAL or _FIELD_NAME.match(key) else "*"
            if name == "*":
                seen.pieces.note("*", key)
                yield TextPosition(f"{position}.*" if position else "*", key)
            inner = f"{position}.{name}" if position else name
            if type(value) is str:  # most values: a walk of its own would cost more than the text
                if value:
                    seen.pieces.note(name, value)
                    yield TextPosition(inner, value)
                    if value.lstrip()[:1] in _OPENS_JSON:
                        yield from _nested(value, inner, nested, seen)
                    if key not in _STRUCTURE and len(value) <= SEAM_CHARS and _DIGIT.search(value):
                        yield _join(inner, [key, value], " ")
            elif value is not None and type(value) is not bool:
                yield from _walk(value, inner, nested, seen)
                yield from _named_by_key(key, value, inner, nested)
        for key, name, value in named_values(node):
            yield _join(f"{position}.{key}" if _FIELD_NAME.match(key) else f"{position}.*", [name, value], FIELD_SIGN)
        if position and not node.keys() <= _STRUCTURE:
            yield from _beside(node, position)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _walk(value, f"{position}[{index}]", nested, seen)
        if (pair := named_pair(node)) is not None:
            yield _join(position, pair, FIELD_SIGN)
        if not _TURNS.fullmatch(position):
            yield from _together(position, pieces_of(node))
        scalars = [str(v) for v in node if isinstance(v, (str, int, float)) and not isinstance(v, bool)]
        if len(scalars) > 1:
            if sum(map(len, scalars)) >= _MIN_SIBLING_CHARS and all(isinstance(value, str) for value in node):
                yield from _together(position, scalars)
            else:
                yield _join(position, scalars, " ")
    elif isinstance(node, (int, float)) and not isinstance(node, bool):
        seen.has_fraction = seen.has_fraction or (isinstance(node, float) and len(repr(node)) >= _MIN_FRACTION_CHARS)
        if isinstance(node, int) and node >= 1_000:
            seen.pieces.note(position.rpartition(".")[2], str(node))
        if abs(node) >= _MIN_NAMED_NUMBER:
            yield TextPosition(position, _plain(node))


def _named_by_key(key: str, value: Any, position: str, nested: int) -> Iterator[TextPosition]:
    """A number, or each short item of a list, beside the key that says what it is. In JSON within a string a number
    stands beside its key anyway."""
    if type(value) is list and key not in _USUAL:
        for index, item in enumerate(value):
            if _is_large(item) or (type(item) is str and len(item) <= SEAM_CHARS and _DIGIT.search(item)):
                yield _join(f"{position}[{index}]", [key, str(item)], " ")
    elif _is_large(value) and nested == MAX_NESTED_JSON and key not in _STRUCTURE:
        yield _join(position, [key, str(value)], " ")


def _is_large(value: Any) -> bool:
    return type(value) is int and value >= _MIN_NAMED_NUMBER


def _beside(node: dict[str, Any], position: str) -> Iterator[TextPosition]:
    """What the short values of one object say one after another; fields of the request itself, which are its settings,
    say nothing together and are not asked."""
    values = [value for key, value in node.items() if key not in _STRUCTURE and not isinstance(value, bool)]
    texts = [str(value) for value in values if isinstance(value, (str, int, float))]
    short = [text for text in texts if len(text) <= SEAM_CHARS and _DIGIT.search(text)]
    if len(short) > 1 and sum(map(len, short)) >= _MIN_SIBLING_CHARS:
        if all(isinstance(value, str) for value in values):
            yield from _together(position, short)
        else:
            yield _join(position, short, " ")


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e21 else repr(number)


def _nested(text: str, position: str, nested: int, seen: _Seen) -> Iterator[TextPosition]:
    """JSON inside a string, as in arguments and results of tools: escapes there could hide what is written, and so
    could the signs between two values."""
    is_escaped = "\\" in text
    if nested == 0:
        return
    if text.lstrip()[:1] not in _OPENS_JSON:
        return
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return
    # Numbers of an unescaped text were met as part of it; each by itself, they would hide two that are one elsewhere.
    seen = seen if is_escaped or position.endswith(".arguments") else _Seen()
    for inner in _walk(value, position, nested - 1, seen):
        if is_escaped or inner.seams:
            yield inner


def _joined(body: dict[str, Any]) -> Iterator[TextPosition]:
    prompt, suffix = body.get("prompt"), body.get("suffix")
    if isinstance(prompt, str) and isinstance(suffix, str):
        yield from _together("prompt", [prompt, suffix])
    turns = turns_of(body)
    if turns is None:
        return
    spoken = [pieces_of(turn) for turn in turns]
    for index, pieces in enumerate(spoken):
        if len(pieces) > 1:
            yield from _together(f"messages[{index}].content", pieces)
    if len(spoken) < 2:
        return
    flat = ["".join(pieces) for pieces in spoken]
    yield from _together("messages", flat, GLUED_CHARS)
    # Whoever speaks goes on in the next turn where another interrupted: a caller an answer, a tool the next call.
    for speaks in (is_of_user, is_of_tool):
        own = [text for text, turn in zip(flat, turns, strict=True) if speaks(turn)]
        if len(own) < len(flat):
            yield from _together("messages", own, GLUED_CHARS)


def _together(position: str, texts: Sequence[str], side_chars: int = SEAM_CHARS) -> Iterator[TextPosition]:
    """Texts one after another."""
    for text, seams in readings(texts, side_chars):
        yield TextPosition(position, text, seams)


def _join(position: str, texts: Sequence[str], separator: str) -> TextPosition:
    text, seams = joined(texts, separator)
    return TextPosition(position, text, seams)
