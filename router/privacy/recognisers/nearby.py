"""Words around a number that say what it is: names of identity numbers in many languages, or of an order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

_ALTERNATIVE = re.compile(r"\|(?![^(]*\))")
"""A bar outside of parentheses."""
_LATIN_LETTER = re.compile(r"[a-z]")
_BEFORE_CHARS = 48
_AFTER_CHARS = 24

ANY_IDENTITY = (
    r"identity|identit[éà]|identidad|identifikation|identification|\bid[ -]?(?:number|no\b|nr\b|card|code|nummer)"
    r"|national[ -]?(?:id|insurance|number)|citizen|personal[ -]?(?:number|id|code)|social[ -](?:security|insurance)"
    r"|\btax(?:payer)?[ -]?(?:id|no|number|file|code|ref)|\btin\b|steuer|personal(?:ausweis|nummer)|ausweis"
    r"|sozialversicherung|num[ée]ro (?:fiscal|de s[ée]cu|national)|documento|c[ée]dula|c[óo]digo fiscal|身份证|身份證"
    r"|证件|證件|税号|税務|マイナンバー|個人番号|주민|удостоверение|инн|налог"
)
"""Words for an identity number of whatever country."""
_WORD_EDGE = r"(?:(?<![0-9A-Za-z])(?=[0-9A-Za-z])|(?<=[0-9A-Za-z])(?![0-9A-Za-z]))"
_OTHER_NUMBER = re.compile(
    r"(?i)(?:\b(?:order|invoice|ticket|tracking|shipment|parcel|sendung\w*|paket\w*|colis|env[íi]o|sku|part|serial|build|commit|revision|version|release"
    r"|timestamp|epoch|isbn|ean|upc|gtin|issue|job|run|batch|trace|span|session|request|transaction|article|item"
    r"|bestell\w*|rechnung\w*|auftrag\w*|commande|facture|pedido|factura|albar[áa]n|zam[óo]wieni\w*)\b"
    r"|#|订单|訂單|单号|運單|流水号|发票|注文|伝票|송장|주문|зак[аo]з|сч[её]т)[^0-9\n]{0,16}\Z"
)
_COUNTED = re.compile(
    r"(?i) ?(?:bytes|tokens|views|rows|users|items|records|requests|lines|times|points|people|years|days|hours|seconds"
    r"|entries|events|messages|files|pixels|ms|px|[kmgt]i?b|%|个|条|次|行|件|人)(?![0-9A-Za-z])"
)
_COLUMN_CHARS = 600
_COLUMN_NUMBERS = 4
"""Bare numbers of one length from which on they are a column of a table or of a log."""
_PASSING_RATIO = 0.5
_ROW_BEFORE = re.compile(r"[0-9][A-Fa-f]{0,3}([ \t.\-/]){1,4}\Z")
_ROW_AFTER = re.compile(r"([ \t.\-/]){1,4}(?=[0-9A-Fa-f]{0,8}[0-9])")
_JOINED_BEFORE = frozenset("._/#=+-$€£¥%^~\\")
_JOINED_AFTER = frozenset("._/-+%")


@cache
def words(pattern: str) -> re.Pattern[str]:
    """The pattern of such words, as they read in a folded text: there, Cyrillic о is Latin and ー a dash. The edge of
    a Latin word may touch other scripts, which have no spaces. Each is compiled when it is first asked for."""
    for char, read in (("о", "[оo]"), ("ー", "[ー-]"), (r"\b", _WORD_EDGE)):
        pattern = pattern.replace(char, read)
    return re.compile("(?i)" + pattern)


def triggers_of(pattern: str) -> Iterator[bytes]:
    """Byte patterns, one of which fires where a Latin word of `pattern` stands. Words of other scripts give none."""
    for word in _ALTERNATIVE.split(pattern):
        plain = "".join(char if char.isascii() else r"\?" for char in word)
        if len(_LATIN_LETTER.findall(plain.replace(r"\b", ""))) >= 2:
            yield b"(?i)" + plain.encode()


def named(text: str, start: int, end: int, names: Iterable[str]) -> bool:
    """Whether a word of one of these patterns stands near `[start, end)`."""
    before, after = (max(0, start - _BEFORE_CHARS), start), (end, end + _AFTER_CHARS)
    return any(words(each).search(text, *around) for each in names for around in (before, after))


def is_other_number(text: str, start: int, end: int) -> bool:
    """Whether a word beside it says that this is a number of another kind, such as of an order, or a count."""
    return bool(_COUNTED.match(text, end)) or bool(_OTHER_NUMBER.search(text[max(0, start - _BEFORE_CHARS) : start]))


def is_joined(text: str, start: int, end: int) -> bool:
    """Whether signs join `[start, end)` to something longer: a path, a decimal, a sum of money, an identifier."""
    if start > 0 and text[start - 1] in _JOINED_BEFORE:
        return True
    return end + 1 < len(text) and text[end] in _JOINED_AFTER and text[end + 1].isalnum()


def is_chance(text: str, start: int, end: int, is_valid: Callable[[str], bool]) -> bool:
    """Whether the bare number at `[start, end)` passes its check by chance: of many numbers of one length some do,
    while a column of real ones passes as a whole."""
    column = set(_bare(end - start).findall(text, max(0, start - _COLUMN_CHARS), end + _COLUMN_CHARS))
    return len(column) >= _COLUMN_NUMBERS and sum(map(is_valid, column)) < _PASSING_RATIO * len(column)


def is_in_row(text: str, start: int, end: int) -> bool:
    """Whether a number in groups is only a piece of a longer row of them, as in a dump."""
    before = _ROW_BEFORE.search(text, max(0, start - 8), start)
    if before is not None and before[1] in text[start:end]:
        return True
    after = _ROW_AFTER.match(text, end)
    return after is not None and after[1] in text[start:end]


@cache
def _bare(length: int) -> re.Pattern[str]:
    return re.compile(rf"(?<![0-9.])[0-9]{{{length}}}(?![0-9])")
