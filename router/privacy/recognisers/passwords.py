"""Passwords, keys and tokens that only their name tells: `password: …`, `<password>…`, `my password is …`, a JSON key.

What separates a name from its value says how sure one may be: quotes, tags and fields of an object hold a value whole,
so there it may be a word; anywhere else it has to look like more than one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import Span
from router.privacy.recognisers.credential_values import is_prose, opens_something
from router.privacy.recognisers.credential_words import Name, Names, Sort
from router.privacy.recognisers.model import Recogniser, Tick
from shared.openai.fields import FIELD_SIGN
from shared.privacy import PrivacyClass

_FIELD = re.compile(rf"{FIELD_SIGN}[ ]?(?P<value>.{{3,1024}})\Z", re.DOTALL)
_CLOSE = r"(?:\\{0,3}[\"'`*_]{1,3}|[\])])?"
_BETWEEN = (
    r"(?:[ ](?:\([^()\n]{1,24}\)|[A-Za-z0-9_.-]{1,20})){0,4}"
    r"|(?:[^\x00-\x7f]|[oOI-]){0,12}(?: (?:[^\x00-\x7f]|[oOI-]){1,12}){0,3}"
)
"""Words between the name and the sign: `password for the database: …`."""
_SIGN = (
    r"(?:[ \t]{0,8}(?:=>|:=|={1,3}|[:=?](?!//)|->)|[ ](?:is|was|are|lautet|ist|est|es|é|è|jest|je|[:=])(?=[ :])"
    r"|['’]s(?= )"
    r"|[ ]?(?:是|为|為|は|는|은|이|هي|हे|है)[:]?|：)"
)
_QUOTED = re.compile(
    rf"{_CLOSE}(?:{_BETWEEN}){_SIGN}[*_]{{0,3}}[ \t]{{0,8}}(?:\r?\n[ \t]{{0,32}})?[A-Za-z&]?(?P<quote>\\{{0,3}}[\"'`])"
    r"(?P<value>(?:(?!(?P=quote))[^\n]){3,512})(?P=quote)"
)
_BARE = re.compile(
    rf"{_CLOSE}(?:{_BETWEEN}){_SIGN}[*_]{{0,3}}[ \t]{{0,8}}(?:\r?\n[ \t]{{0,32}})?"
    r"(?P<value>[^\s\"'`,;<>，。；、&|]{4,256})"
)
_TAG = re.compile(r"<[A-Za-z0-9_.:-]{0,32}\Z")
_TAGGED = re.compile(r"(?:[ \t][^<>]{0,128})?>\s{0,16}(?:<!\[CDATA\[)?(?P<value>[^<>]{3,512}?)(?:\]\]>)?\s{0,16}</")
_VALUE_OF = re.compile(
    r"\\{0,3}[\"']?[ \t,]{0,4}(?:\{[ \t]{0,8})?(?:\r?\n[ \t]{0,32})?\\{0,3}[\"']?(?:value|val|content|default)"
    r"\\{0,3}[\"']?[ \t]{0,4}[:=][ \t]{0,4}(?P<quote>\\{0,3}[\"']?)(?P<value>[^\s\"'\\<>,}]{3,256})(?P=quote)"
)
"""`name="password" value="…"`, and the same in JSON and YAML."""
_CELL = re.compile(r"[*` ]{0,4}\|[*` ]{0,4}(?P<value>[^|\s`]{4,256})[*` ]{0,4}(?:\||\Z|\n)")
_PHRASE = re.compile(
    r"(?i)(?:seed|recovery|mnemonic|backup|secret|pass)[ _-]?(?:phrase|words?)?[\"']?(?:[ \t]{0,4}[:=]|[ ]is)"
    r"[ \t]{0,4}[\"']?(?P<value>(?:[a-z]{3,10}[ ,\n\t-]{1,3}){3,23}[a-z]{3,10})[\"']?[ \t]*(?:[.\n]|\Z)"
)
"""Words one after another and nothing else: a passphrase, or the seed of a wallet."""
_COMMAND = re.compile(
    r"(?:^|[\s;&|])(?:ENV|ARG|setx?|setenv|set -[a-zA-Z]{1,3}|export|LABEL)[ \t]{1,4}[\"']?[A-Za-z0-9_.]{0,48}\Z",
    re.MULTILINE,
)
_AFTER_COMMAND = re.compile(r"[ \t]{1,4}[\"']?(?P<value>[^\s\"'=][^\s\"']{3,255})")
_BESIDE = re.compile(r"[ \t]{0,2}(?P<value>[!-~]{6,128})")
"""Without a sign: what scripts without spaces write."""
_LINE_HEAD = re.compile(
    r"(?:^|\n)[ \t]{0,64}(?:[-*] )?(?:export |set |ENV |ARG |[A-Za-z]{2,12} )?[\w.-]{0,64}\Z|[?&;][\w.-]{0,64}\Z"
    r"|--[\w-]{0,64}\Z"
)
_LINE_END = re.compile(r"[ \t]{0,8}(?:\\?$|#|//|[&;])", re.MULTILINE)
_OWNED = re.compile(r"(?i)(?:\b(?:my|our|his|her|their|mein|mon|mi|minha|il mio)|мой|我的|私の)[^\n.]{0,32}\Z")
_STATES = re.compile(
    r"(?i).*(?:ed|ing|ly|able|ible|ful|less|ive|ous|ary|ic|ent|ant|ong|eak|ost|ure|een|own|olen|hort|imple|afe|asy|ame)"
    r"|(?:out|not|too|very)\b.*"
)
"""How words end that say what became of a password."""
_SENTENCE_END = re.compile(r"[.!]?(?:\s*\Z|\s*\n|[.!] )")
_TRIM = ".?:,"
_PAIRS = {")": "(", "]": "[", "}": "{"}


def _find(names: Names, text: str, tick: Tick) -> Iterator[Span]:
    for match in _PHRASE.finditer(text):
        tick()
        if not is_prose(match["value"]):
            yield match.span("value")
    for name in names.find(text, tick):
        span = _value_of(text, name)
        if span is not None:
            yield span


def _value_of(text: str, name: Name) -> Span | None:
    """The value behind a name, if there is one."""
    for pattern in (_FIELD, _QUOTED, _VALUE_OF):
        match = pattern.match(text, name.end)
        if match and opens_something(match["value"].strip(), name, is_certain=True):
            return match.span("value")
    if _TAG.search(text, max(0, name.start - 33), name.start):
        match = _TAGGED.match(text, name.end)
        if match and opens_something(match["value"].strip(), name, is_certain=True):
            return match.span("value")
    return _bare_value(text, name)


def _bare_value(text: str, name: Name) -> Span | None:
    for pattern in (_BARE, _CELL):
        match = pattern.match(text, name.end)
        if match is None:
            continue
        start, end = match.start("value"), _end_of(text, *match.span("value"))
        is_alone = pattern is _BARE and _is_alone(text, name, match, end)
        if opens_something(text[start:end], name, is_certain=is_alone) or _is_said(text, name, start, end):
            return start, end
    if _COMMAND.search(text, max(0, name.start - 64), name.start):
        match = _AFTER_COMMAND.match(text, name.end)
        if match and opens_something(match["value"], name, is_certain=False):
            return match.span("value")
    if name.sort is Sort.PASSWORD and not text[name.end - 1].isascii():
        match = _BESIDE.match(text, name.end)
        if match and opens_something(match["value"], name, is_certain=False):
            return match.span("value")
    return None


def _end_of(text: str, start: int, end: int) -> int:
    """Where a value without quotes ends: marks of the sentence and brackets around it are not part of it."""
    while end > start:
        last = text[end - 1]
        opening = _PAIRS.get(last)
        is_unopened = opening and text.count(opening, start, end) < text.count(last, start, end)
        if last not in _TRIM and not is_unopened:
            break
        end -= 1
    return end


def _is_alone(text: str, name: Name, match: re.Match[str], end: int) -> bool:
    """Whether name and value are a line of their own, or a part of an address, so that the value may be a word."""
    head = _LINE_HEAD.search(text, max(0, name.start - 96), name.start)
    is_first = name.start <= 96 and text[: name.start].isidentifier()
    if not head and not is_first and name.start > 0:
        return False
    if "\n" in match.group() or " is" in match.group():
        return False
    is_variable = match.group().startswith("=") and text[name.start : name.end].isupper()
    return (is_variable and text[end : end + 1] == " ") or _LINE_END.match(text, end) is not None


def _is_said(text: str, name: Name, start: int, end: int) -> bool:
    """Whether a sentence says whose password this is; there, a word that is no state of it is the password."""
    value = text[start:end]
    if name.sort is not Sort.PASSWORD or not value.isalnum() or len(value) < 4 or _STATES.fullmatch(value):
        return False
    owned = _OWNED.search(text, max(0, name.start - 48), name.start)
    is_end = owned is not None and _SENTENCE_END.match(text, end) is not None
    return is_end and opens_something(value, name, is_certain=True)


_TRIGGERS = (
    rb"(?i)(?:pass|pwd?|psk|kennwort|mdp|contrase|clave|senha|palavra|wachtwoord|senord|adgangskode|kodeord|salasana|haslo"
    rb"|has\?o|heslo|jelsz|parol|[i?]fre|lozinka|geslo|slapta|lykilor|kh\?u|sandi|credential|secret|key|token|authorization"
    rb"|cookie|session|signature|pin|otp|code|seed|recovery|mnemonic|backup)"
    rb"[A-Za-z0-9_?\- ().']{0,64}[\"'`\])*\\{, ]{0,6}\s{0,8}"
    rb"(?:(?:value|val|content|default)[^\n]{4}|(?:[=:?>|\x1f]|->|is|was|are|lautet|ist|est|es|jest|je|['?]s)[*_]{0,3}\s{0,32}[^\s]{3})",
    rb"\?[ :=?|\x1f)]{0,4}[\"'`]{0,2}[!->@-~]{5}",
    rb"(?i)(?:ENV|ARG|setx?|setenv|export)[ \t]+(?:-[a-z]{1,3}[ \t]+)?[A-Za-z0-9_]{0,48}(?:pass|pwd|secret|key|token)"
    rb"[A-Za-z0-9_]{0,24}[ \t]",
    rb"(?i)(?:pass|secret|key|token|pwd)[A-Za-z0-9_:.\-]{0,32}[ \t]?[^<>]{0,64}>\s{0,16}(?:<!|[^<>]{3})",
)


def recognisers() -> tuple[Recogniser, ...]:
    """One recogniser for all names."""
    names = Names()

    def find(text: str, tick: Tick) -> Iterator[Span]:
        return _find(names, text, tick)

    return (Recogniser("password", PrivacyClass.SECRET, _TRIGGERS, find, score=0.8),)
