"""Every text of a body, with its position: what a scanner must see before a byte may leave.

The walk is generic on purpose. It visits each string, number and key wherever it stands, so a field that nobody
thought of cannot carry text past the scanner. Adjacent texts are joined as a reader would join them, so that a
number cut over two parts or two messages is still one number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

MAX_NESTED_JSON = 3
SEAM_CHARS = 256
"""Characters kept on each side where texts are joined: more than anything that could be cut over a seam."""
_GAP = "\x1e\x1e\x1e\x1e"
"""Stands for the middle of a long text inside a joined one; no finding reaches across it."""
_FIELD_NAME = re.compile(r"[A-Za-z_]{1,40}\Z")
_DIGIT = re.compile(r"[0-9]")
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
_MEDIA_TYPES = frozenset({"image_url", "input_image", "input_audio", "file", "input_file", "video_url", "audio_url"})


@dataclass(frozen=True, slots=True)
class TextPosition:
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


def texts_of(body: dict[str, Any]) -> Iterator[TextPosition]:
    """Yield each text of `body` in document order, then what texts say together that none says alone."""
    yield from _walk(body, "", MAX_NESTED_JSON)
    yield from _joined(body)


def has_undecodable(body: dict[str, Any]) -> bool:
    """Whether some part of `body` is media or token ids, which no text scanner can read."""
    if _holds_token_ids(body.get("prompt")) or _holds_token_ids(body.get("input")):
        return True
    pending: list[Any] = [body]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            # A schema may have a property named `type` or `file`; only a part's own tag counts.
            if isinstance(tag := node.get("type"), str) and tag in _MEDIA_TYPES:
                return True
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return False


def _holds_token_ids(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return any((isinstance(v, int) and not isinstance(v, bool)) or _holds_token_ids(v) for v in value)


def _walk(node: Any, position: str, nested: int) -> Iterator[TextPosition]:
    if isinstance(node, str):
        if node:
            yield TextPosition(position, node)
        yield from _nested(node, position, nested)
    elif isinstance(node, dict):
        for key, value in node.items():
            # A key can itself be text that someone typed: only plain field names appear in a position.
            name = key if _FIELD_NAME.match(key) else "*"
            if name == "*":
                yield TextPosition(f"{position}.*" if position else "*", key)
            inner = f"{position}.{name}" if position else name
            yield from _walk(value, inner, nested)
            if isinstance(value, str) and key not in _STRUCTURE and len(value) <= SEAM_CHARS and _DIGIT.search(value):
                yield _join(inner, [key, value], " ")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _walk(value, f"{position}[{index}]", nested)
        scalars = [str(v) for v in node if isinstance(v, (str, int, float)) and not isinstance(v, bool)]
        if len(scalars) > 1:
            yield _join(position, scalars, " ")
    elif isinstance(node, (int, float)) and not isinstance(node, bool) and abs(node) >= 100_000:
        yield TextPosition(position, _plain(node))


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e21 else repr(number)


def _nested(text: str, position: str, nested: int) -> Iterator[TextPosition]:
    """JSON inside a string, as in tool arguments: escapes there could hide what is written."""
    if nested == 0 or "\\" not in text or text.lstrip()[:1] not in ("{", "[", '"'):
        return
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return
    yield from _walk(value, position, nested - 1)


def _joined(body: dict[str, Any]) -> Iterator[TextPosition]:
    messages = body.get("messages")
    if not isinstance(messages, list):
        return
    contents = [_content_text(message) for message in messages]
    for index, parts in enumerate(contents):
        if len(parts) > 1:
            yield _join(f"messages[{index}].content", parts, "")
            yield _join(f"messages[{index}].content", parts, " ")
    flat = ["".join(parts) for parts in contents]
    if len(flat) > 1:
        yield _join("messages", flat, " ")
    # A caller goes on in the next turn where an answer interrupted.
    own = [text for text, message in zip(flat, messages, strict=True) if _is_user(message)]
    if 1 < len(own) < len(flat):
        yield _join("messages", own, " ")


def _join(position: str, texts: Sequence[str], separator: str) -> TextPosition:
    """The texts as one. The middle of a long one is left out: it was yielded by itself."""
    ends = [t if len(t) <= 2 * SEAM_CHARS else t[:SEAM_CHARS] + _GAP + t[-SEAM_CHARS:] for t in texts]
    seams, at = [], 0
    for text in ends[:-1]:
        at += len(text) + len(separator)
        seams.append(at)
    return TextPosition(position, separator.join(ends), tuple(seams))


def _is_user(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "user"


def _content_text(message: Any) -> list[str]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return [p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str)]
    return []
