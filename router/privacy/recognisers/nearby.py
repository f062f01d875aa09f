"""Words around a number that say what it is: names of identity numbers in many languages, or of an order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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
    r"|sozialversicherung|num[ée]ro (?:fiscal|de s[ée]cu|national)|documento|c[ée]dula|c[óo]digo fiscal|身[份分][证證]"
    r"|证件|證件|税号|税務|マイナンバー|個人番号|주민|удостоверение|инн|налог"
)
"""Words for an identity number of whatever country."""
_WORD_EDGE = r"(?:(?<![0-9A-Za-z])(?=[0-9A-Za-z])|(?<=[0-9A-Za-z])(?![0-9A-Za-z]))"
_OTHER = (
    r"(?:(?<![A-Za-z])(?i:orders?|invoice|ticket|tracking|shipment|parcel|sendung\w*|paket\w*|colis|env[íi]o|sku|part|serial"
    r"|build|commit|revision|version|release|timestamp|epoch|isbn|ean|upc|gtin|issue|job|run|batch|trace|span|session"
    r"|request|transaction|txn|article|item|thread|tid|pid|offset|seq(?:uence)?|bestell\w*|rechnung\w*"
    r"|auftrag\w*|commande|facture|pedido|factura|albar[áa]n|zam[óo]wieni\w*)(?![a-z])(?!(?<=[A-Z])[A-Z])"
    r"|#|订单|訂單|单号|運單|流水号|发票|注文|伝票|송장|주문|(?i:зак[аo]з|сч[её]т))"
)
_NUMBER = (
    r"(?i:n[or°º]|num(?:ber|mer|[ée]ro)?|n[úu]mero|ids?|codes?|refs?|keys?|is|was|ist|est|号码?|號碼?"
    r"|编号|番号|번호|нoмер)"
)
_OTHER_NUMBER = re.compile(rf"{_OTHER}(?=(?:[ \t:=.,#\"'_/-]{{0,3}}{_NUMBER}){{0,3}}[ \t:=.,#\"'_/-]{{0,4}}\Z)")
"""Such a word, and nothing behind it but what leads to its number: `order for 15108695088` speaks of somebody."""
_COUNTED = re.compile(
    r"(?i) ?(?:bytes|tokens|views|rows|users|items|records|requests|lines|times|points|people|years|days|hours|seconds"
    r"|entries|events|messages|files|pixels|ms|px|[kmgt]i?b|%|个|条|次|行|件|人)(?![0-9A-Za-z])"
)
_ROW_BEFORE = re.compile(r"[0-9][A-Fa-f]{0,3}([ \t.\-/]){1,4}\Z")
_ROW_AFTER = re.compile(r"([ \t.\-/]){1,4}(?=[0-9A-Fa-f]{0,8}[0-9])")
_JOINED_BEFORE = frozenset("._/#+-$€£¥%^~\\")
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


def is_other_number(text: str, start: int, end: int, names: Iterable[str] = ()) -> bool:
    """Whether a word beside it says that this is a number of another kind, such as of an order, or a count. A word of
    `names` that is nearer, or behind it, says more: `my request: PESEL 44051401359`."""
    if is_count(text, end):
        return True
    other = _OTHER_NUMBER.search(text, max(0, start - _BEFORE_CHARS), start)
    if other is None:
        return False
    nearer = (other.end(), start), (end, end + _AFTER_CHARS)
    return not any(words(each).search(text, *around) for each in names for around in nearer)


def is_count(text: str, end: int) -> bool:
    """Whether what stands behind a number says that it counts something."""
    return _COUNTED.match(text, end) is not None


def names_other(name: str) -> bool:
    """Whether the name of a column says that it holds numbers of another kind."""
    return _OTHER_NUMBER.search(name) is not None


def is_joined(text: str, start: int, end: int) -> bool:
    """Whether signs join `[start, end)` to something longer: a path, a decimal, a sum of money, an identifier."""
    if start > 0 and text[start - 1] in _JOINED_BEFORE:
        return True
    return end + 1 < len(text) and text[end] in _JOINED_AFTER and text[end + 1].isalnum()


def is_in_row(text: str, start: int, end: int) -> bool:
    """Whether a number in groups is only a piece of a longer row of them, as in a dump."""
    before = _ROW_BEFORE.search(text, max(0, start - 8), start)
    if before is not None and before[1] in text[start:end]:
        return True
    after = _ROW_AFTER.match(text, end)
    return after is not None and after[1] in text[start:end]
