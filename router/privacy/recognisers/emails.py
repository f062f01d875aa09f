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
_EDGE_SIGNS = "'`.*{|/=&?~"
"""Signs that are legal in a local part but, at its left edge, belong to the text around."""
_MARKS = r"\u0900-\u0dff\u0e00-\u109f"
"""Scripts whose vowels are marks of their own, which are no letters to a pattern."""
_DOMAIN = re.compile(
    rf"(?:(?:[^\W_]|[{_MARKS}])(?:[\w{_MARKS}-]{{0,61}}(?:[^\W_]|[{_MARKS}]))?\.){{1,10}}"
    rf"(xn--[A-Za-z0-9-]{{1,59}}|[A-Za-z]{{2,63}}|(?=[oOI]{{0,63}}[^\W\d_A-Za-z])(?:[^\W\d_A-Za-z]|[oOI{_MARKS}]){{2,63}})"
)
"""Of an ending in another script, folding has made o and I of the letters that look like them."""
_SCRIPT_EDGE = re.compile(r".*[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af](?=[A-Za-z0-9][\x21-\x7e]*\Z)")
_COMMON_ENDINGS = frozenset(
    {"com", "org", "net", "edu", "gov", "info", "io", "eu", "de", "uk", "fr", "es", "it", "nl", "cn", "ru", "jp", "co"}
)
"""Domains that are whole whatever is glued to them; any other may be the head of a longer word."""
_EMPHASIS_END = re.compile(r"_{1,3}(?![^\W_])")
_REMOTE_PATH = re.compile(
    r":(?:\.{0,2}/|~|\$\{|[A-Za-z0-9_.+-]{1,64}/|[A-Za-z0-9_.+-]{1,64}\.git)[A-Za-z0-9_.+/~${}@-]{0,256}(?![^\s\"'`)\]>,;])"
)
"""What follows `user@host` in a remote copy; a password behind an address is no path."""
_USER_OF_URL = re.compile(r"//[^\s:/@\"'<>{}$]{0,128}:\Z")
_USER_OF_URL_CHARS = 131
_FILE_ENDINGS = frozenset({"png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js"})
"""`logo@2x.png` names a picture."""


def find(text: str, tick: Tick) -> Iterator[Span]:
    """Email addresses in `text`."""
    at = text.find("@")
    while at != -1:
        tick()
        domain = _DOMAIN.match(text, at + 1)
        if domain and domain.group(1).lower() not in _FILE_ENDINGS and _ends_here(text, domain):
            start = _start_of_local(text, at)
            if text[domain.end() : domain.end() + 1] == "_":
                start += len(text[start:at]) - len(text[start:at].lstrip("_"))
            if start < at and not (text[start - 1 : start] == ":" and _is_password(text, start)):
                yield start, domain.end()
        at = text.find("@", at + 1)


def _ends_here(text: str, domain: re.Match[str]) -> bool:
    """Whether the domain is whole: not the head of a longer word, and not `user@host.name:path`."""
    end = domain.end()
    if end == len(text):
        return True
    if text[end] == ":":
        return _REMOTE_PATH.match(text, end) is None
    if text[end] in "_@" or (text[end].isalnum() and text[end].isascii() == text[end - 1].isascii()):
        return domain.group(1).lower() in _COMMON_ENDINGS or _EMPHASIS_END.match(text, end) is not None
    return True


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
    return char.isalnum() or char in _LOCAL_SIGNS or "\u0900" <= char <= "\u109f"


def _is_password(text: str, start: int) -> bool:
    """Whether what stands before `@` is the password of a URL (`scheme://user:password@host`)."""
    return _USER_OF_URL.search(text, max(0, start - _USER_OF_URL_CHARS), start) is not None


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
