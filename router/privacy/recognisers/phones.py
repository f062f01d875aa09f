"""Telephone numbers: international ones by their plus sign, national ones only where the writing is unmistakable.

The numbering plans are those of `phonenumbers`; digits without a sign or a grouping are left alone, because most
of them are something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import phonenumbers

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick, inside_code
from router.privacy.recognisers.nearby import is_count, is_in_row, is_other_number, words
from shared.privacy import PrivacyClass

_INTERNATIONAL = re.compile(
    r"(?<![0-9A-Za-z+])(?:\+|(?<![0-9][ .\-])00(?=[1-9]))[0-9](?:[ \t.\-/()（）]{0,3}[0-9]){6,14}(?![0-9])"
)
_NATIONAL: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"(?<![0-9A-Za-z.\-+])(?<!\+1 )(?:1 )?\([2-9][0-9]{2}\)[ .-]?[2-9][0-9]{2}[ .-][0-9]{4}(?![0-9A-Za-z\-])"
        ),
        "US",
    ),
    (re.compile(r"(?<![0-9A-Za-z.\-+])(?:1[.-])?[2-9][0-9]{2}([.-])[2-9][0-9]{2}\1[0-9]{4}(?![0-9A-Za-z.\-])"), "US"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])0[1-9](?:([ .-])[0-9]{2})(?:\1[0-9]{2}){3}(?![0-9A-Za-z.\-])"), "FR"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])\(?0[127][0-9]{2,4}\)? [0-9]{3,4} [0-9]{3,4}(?![0-9A-Za-z\-])"), "GB"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])\(?02[0-9]\)? [0-9]{4} [0-9]{4}(?![0-9A-Za-z\-])"), "GB"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])0[789]0-[0-9]{4}-[0-9]{4}(?![0-9A-Za-z\-])"), "JP"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])0[1-9]-[0-9]{4}-[0-9]{4}(?![0-9A-Za-z\-])"), "JP"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])01[016789]-[0-9]{3,4}-[0-9]{4}(?![0-9A-Za-z\-])"), "KR"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])0(?:10|2[0-9])-[2-8][0-9]{7}(?![0-9A-Za-z\-])"), "CN"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])0[3-9][0-9]{2}-[2-8][0-9]{6,7}(?![0-9A-Za-z\-])"), "CN"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])[(（]0(?:10|2[0-9]|[3-9][0-9]{2})[)）] ?[2-8][0-9]{6,7}(?![0-9A-Za-z\-])"), "CN"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])8 ?\(9[0-9]{2}\) ?[0-9]{3}[ -][0-9]{2}[ -][0-9]{2}(?![0-9A-Za-z\-])"), "RU"),
    (re.compile(r"(?<![0-9A-Za-z.\-+])\([1-9][0-9]\) ?9?[0-9]{4}-[0-9]{4}(?![0-9A-Za-z\-])"), "BR"),
)  # fmt: skip
_MOSTLY: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?<![0-9A-Za-z.\-+/])(?:{writing})(?![0-9A-Za-z\-])"), region)
    for writing, region in (
        (r"\([2-9][0-9]{2}\) ?[2-9][0-9]{6}", "US"),
        (r"07[0-9]{3} [0-9]{6}", "GB"),
        (r"01[567][0-9]{1,2}[ /-][0-9]{7,8}|0[2-9][0-9]{1,4}/[0-9]{5,8}", "DE"),
        (r"8[ -]9[0-9]{2}[ -][0-9]{3}[ -][0-9]{2}[ -][0-9]{2}", "RU"),
        (r"0[789]0 [0-9]{4} [0-9]{4}", "JP"),
        (r"09[0-9]{2}-[0-9]{3}-[0-9]{3}", "TW"),
        (r"06-[0-9]{8}", "NL"),
        (r"05[0-9]{2} [0-9]{3} [0-9]{2} [0-9]{2}", "TR"),
        (r"04[0-9]{2} [0-9]{3} [0-9]{3}", "AU"),
        (r"08[0-9]{2}-[0-9]{4}-[0-9]{4}", "ID"),
    )
)
"""Writings that few other numbers have: they count unless a word says that this is one of them."""
_GROUP = re.compile(r"[0-9]+")
_NAMED = words(
    r"(?:\b(?:tel[ée]?(?:f[oó]n[oe]?|phone|fon)?|(?:tele|cell|mobile?)?phones?|mobiles?|mobil(?:telefon)?|m[óo]vil"
    r"|cell(?:ulare?)?|celular|call(?: me)?(?: at| on)?|fax|whatsapp|signal|handy|ring(?: me)?|sms|t[ée]l"
    r"|t[ée]l[ée]phone|portable|contact|telefoon|puh(?:elin)?|ll[áa]ma(?:me)? al?|appelez(?:[- ]moi)?(?: au)?"
    r"|erreichbar unter"
    r"|(?:tele[fp]h?on|phone|mobile?|handy|cell|contact|ruf|r[üu]ckruf|fax)[-_ ]?(?:nummer|numbers?|nr|no)"
    r"|(?:my|our|his|her|meine?|unsere|mon|mi|mio|minha|meu|mijn|min) (?:number|nummer|num[ée]ro|n[úu]mero))\b"
    r"|мoй нoмер|тел(?:ефoн)?|мoб|звoн"
    r"|电话|電話|手机|手機|联系方式|致电|携帯|전화|연락처|휴대폰|هاتف|फ़ोन|फोन)"
    r"[\s:：.=\"'_-]{0,4}(?:(?:numbers?|no|nr|num|num[eé]ro|n[uú]mero|nummer|is|are|at|on|ist|lautet|est|es|è|le|work|home|us|me"
    r"|mine|号码?|號碼?|是|为|為|番号|は|번호|는|은|нoмер|пo)[\s:：.=\"'-]{0,4}){0,4}"
)
_NO_NUMBER = re.compile(r"(?:19|20)[0-9]{2}[-./][0-9]{1,2}[-./][0-9]{1,2}|1[5-9][0-9]{8}\Z")
"""A date, or seconds since 1970."""
_AFTER_NAME = re.compile(r"[(（]?[0-9](?:[ .\-/()（）]{0,3}[0-9]){6,13}(?![0-9A-Za-z])")
_NAMED_REGIONS = (
    *("US", "GB", "DE", "FR", "ES", "IT", "NL", "BE", "AT", "CH", "PL", "PT", "SE", "NO", "DK", "FI", "IE", "CZ", "GR"),
    *("RU", "UA", "TR", "CN", "TW", "HK", "JP", "KR", "IN", "SG", "MY", "TH", "ID", "AU", "NZ", "BR", "MX", "AR", "CO"),
    *("ZA", "IL", "AE"),
)
"""Whose plans a number without a country is held against, once a word says that it is one."""


def find(text: str, tick: Tick) -> Iterator[Span]:
    """Telephone numbers in `text`."""
    for match in _INTERNATIONAL.finditer(text):
        tick()
        is_cut = match.group()[0] == "0" and (
            text[match.end() : match.end() + 1].isalpha() or is_in_row(text, *match.span())
        )
        if not is_cut and _is_international(match.group()):
            yield match.span()
    for pattern, region in (*_NATIONAL, *_MOSTLY):
        for match in pattern.finditer(text):
            tick()
            span = match.span()
            is_other = (pattern, region) in _MOSTLY and is_other_number(text, *span)
            is_accident = is_other or inside_code(text, *span) or is_in_row(text, *span)
            if not is_accident and _is_possible(match.group(), region):
                yield span
    for name in _NAMED.finditer(text):
        tick()
        after = _AFTER_NAME.match(text, name.end())
        if after is None or _NO_NUMBER.match(after.group()) or is_count(text, after.end()):
            continue
        if any(_is_valid(after.group(), region) for region in _NAMED_REGIONS):
            yield after.span()


def _is_international(written: str) -> bool:
    """Whether the number is in use; or, behind a plus sign and in groups, possible: so are those kept for fiction."""
    parsed = _parsed("+" + written.removeprefix("+").removeprefix("00"), None)
    if parsed is None or not phonenumbers.is_possible_number(parsed):
        return False
    return phonenumbers.is_valid_number(parsed) or (written[0] == "+" and len(_GROUP.findall(written)) >= 3)


def _is_valid(number: str, region: str | None) -> bool:
    parsed = _parsed(number, region)
    return parsed is not None and phonenumbers.is_valid_number(parsed)


def _is_possible(number: str, region: str) -> bool:
    """The grouping has said that this is a telephone number: fictitious and future ranges count too."""
    parsed = _parsed(number, region)
    return parsed is not None and phonenumbers.is_possible_number(parsed)


def _parsed(number: str, region: str | None) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return None


RECOGNISERS = (
    Recogniser(
        "phone",
        PrivacyClass.PERSONAL,
        (
            rb"(?:\+|00)[0-9](?:[ \t.\-/()?]{0,3}[0-9]){6}",
            rb"[2-9][0-9]{2}[).\-][ .\-]?[2-9][0-9]{2}[ .\-][0-9]{4}",
            rb"0[1-9][0-9]?[0-9]?[0-9]?[)]?[ .\-][0-9]{2}",
            rb"[(?]0[1-9][0-9]{1,2}[)?] ?[2-8][0-9]{6}",
            rb"\?[ .:]{0,3}\(?[0-9][0-9 .\-/()]{6}",
            rb"\([1-9][0-9]\) ?9?[0-9]{4}-[0-9]{4}",
            rb"8(?: ?\(|[ \-])9[0-9]{2}[)\- ]",
            rb"\([2-9][0-9]{2}\) ?[2-9][0-9]{6}",
            rb"0[1-9][0-9]{1,4}[ /\-][0-9]{3}",
            rb"(?i)(?:tel|phone|mobil|vil|cel|call|fax|whatsapp|signal|handy|ring|sms|portable|contact|puh|number|nummer|m[e?]ro|ruf|llama|ll\?ma|appelez|t\?l|erreichbar)"
            rb"[^0-9]{0,28}[0-9][0-9 .\-/()]{6}",
        ),
        find,
        score=0.85,
    ),
)
