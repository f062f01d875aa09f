"""Email addresses, internationalised ones included (RFC 6531), with spans free of the punctuation around them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick
from shared.privacy import PrivacyClass

_MAX_LOCAL_CHARS = 64
_SPELLED = re.compile(
    r"(?i)(?<![\w.+-])[\w.+-]{1,64}\s?[\[({<]\s?(?:at|@|arroba)\s?[\])}>]\s?[\w-]{1,63}"
    r"(?:\s?(?:[\[({<]\s?(?:dot|punkt|punto|point|\.)\s?[\])}>]|\.)\s?[\w-]{1,63}){1,4}(?![\w-])"
    r"|(?<![\w.+-])[\w.+-]{2,64} at [\w-]{1,63} dot (?:com|org|net|edu|gov|io|de|uk|fr|cn|ru|jp|co)(?![\w-])"
)
"""Written so that no machine reads it: `bob [at] example (dot) org`, `bob at example dot com`."""
_QUOTED = re.compile(r"\"[^\"\r\n@]{1,64}\"@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,63}")
_LITERAL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@\[[0-9A-Fa-f.:IPv]{3,45}\]")
_LOCAL_SIGNS = frozenset("!#$%&'*+-/=?^_`{|}~.")
_EDGE_SIGNS = "'`.*{|/=&?"
"""Signs that are legal in a local part but, at its left edge, belong to the text around."""
_DOMAIN = re.compile(
    r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,10}(xn--[A-Za-z0-9-]{1,59}|[A-Za-z]{2,63}|[^\W\d_A-Za-z]{2,63})"
)
_SCRIPT_EDGE = re.compile(r".*[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af](?=[A-Za-z0-9][\x21-\x7e]*\Z)")
_FILE_ENDINGS = frozenset({"png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js"})
"""`logo@2x.png` names a picture."""


def find(text: str, tick: Tick) -> Iterator[Span]:
    """Email addresses in `text`."""
    at = text.find("@")
    while at != -1:
        tick()
        domain = _DOMAIN.match(text, at + 1)
        if domain and domain.group(1).lower() not in _FILE_ENDINGS and _ends_here(text, domain.end()):
            start = _start_of_local(text, at)
            if start < at and not (start > 0 and text[start - 1] in "/:" and _is_password(text, start)):
                yield start, domain.end()
        at = text.find("@", at + 1)


def _ends_here(text: str, end: int) -> bool:
    """Whether the domain is whole: not the head of a longer word, and not `user@host.name:path`."""
    if end < len(text) and (
        text[end] in "_@" or (text[end].isalnum() and text[end].isascii() == text[end - 1].isascii())
    ):
        return False
    return not (text[end : end + 1] == ":" and text[end + 1 : end + 2] not in ("", " ", "\n", "\t", '"', "'", ","))


def _start_of_local(text: str, at: int) -> int:
    if text[at - 1 : at] == ".":
        return at
    start = at
    while start > 0 and at - start < _MAX_LOCAL_CHARS and _is_local(text[start - 1]):
        start -= 1
    while start < at and text[start] in _EDGE_SIGNS:
        start += 1
    # Chinese and Japanese put no space between a word and an address: where the script changes, the address begins.
    edge = _SCRIPT_EDGE.search(text, start, at)
    return edge.end() if edge else start


def _is_local(char: str) -> bool:
    return char.isalnum() or char in _LOCAL_SIGNS


def _is_password(text: str, start: int) -> bool:
    """Whether what stands before `@` is the password of a URL (`scheme://user:password@host`)."""
    return text[start - 1] == ":" and "//" in text[max(0, start - 80) : start]


def _find_unusual(text: str, tick: Tick) -> Iterator[Span]:
    for pattern in (_SPELLED, _QUOTED, _LITERAL):
        for match in pattern.finditer(text):
            tick()
            yield match.span()


_TRIGGER = rb"[A-Za-z0-9?!#$%&'*+\-/=^_`{|}~]@[A-Za-z0-9?][A-Za-z0-9?_\-.]*\.[A-Za-z?]"
_UNUSUAL_TRIGGERS = (
    rb"(?i)[\[({<] ?(?:at|@|arroba) ?[\])}>]",
    rb"(?i) at [A-Za-z0-9_?-]{1,63} dot [a-z]",
    rb"\"@[A-Za-z0-9]",
    rb"@\[[0-9A-Fa-fI]",
)
RECOGNISERS = (
    Recogniser("email", PrivacyClass.PERSONAL, (_TRIGGER,), find),
    Recogniser("email", PrivacyClass.PERSONAL, _UNUSUAL_TRIGGERS, _find_unusual, score=0.8),
)
