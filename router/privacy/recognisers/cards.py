"""Payment cards: issuer ranges with their lengths and the Luhn check, in any grouping a person would write.

Ranges follow the issuer identification numbers of ISO/IEC 7812 as the networks publish them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import sqrt

from stdnum import ean

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick, inside_code, inside_uuid
from router.privacy.recognisers.nearby import is_in_row, is_joined, is_other_number, named
from shared.privacy import PrivacyClass

_MIN_DIGITS, _MAX_DIGITS = 12, 19
_DIGIT = "0-9OoIl|"
"""Letters that pass for digits inside a number: O for 0; I, l and | for 1."""
_SEPARATOR = r"[ \t\r\n.\-_/]"
_RUN = re.compile(rf"[0-9](?:{_SEPARATOR}{{0,3}}[{_DIGIT}]){{{_MIN_DIGITS - 1},}}")
_TRIGGER = rf"[0-9](?:{_SEPARATOR}{{0,3}}[{_DIGIT}]){{{_MIN_DIGITS - 1}}}".encode()
_READINGS = tuple(
    (re.compile(rf"[0-9](?:{_SEPARATOR}{{0,3}}[{digit}]){{{_MIN_DIGITS - 1},}}"), re.compile(rf"[{digit}]+"))
    for digit in ("0-9", "0-9OoIl", _DIGIT)
)
"""Runs and groups, read plainly first: what passes for a digit may also be a word or the bar of a table beside it."""
_SPREAD = re.compile(r"(?<![0-9A-Za-z.])[0-9]{4}(?:[ \t\r\n]{1,16}[0-9]{2,6}){2,4}(?![0-9A-Za-z])")
_SPREAD_TRIGGER = rb"[0-9]{4}[ \t\r\n]{1,16}[0-9]{4,6}[ \t\r\n]{1,16}[0-9]{4}"
_SIGN = r"[^0-9A-Za-z\x1e]"
_ONE_SIGN = r"[^\w\s.\-/\x1e]"
"""Any but those that a run of digits may have in it."""
_SIGNED = re.compile(
    rf"(?<![0-9A-Za-z])(?:[0-9]{{4}}{_SIGN}{{1,8}}[0-9]{{4,6}}{_SIGN}{{1,8}}[0-9]{{4,5}}"
    rf"(?:{_SIGN}{{1,8}}[0-9]{{2,4}}){{0,2}}|[0-9](?:({_ONE_SIGN})[0-9])(?:\1[0-9]){{12,17}})(?![0-9A-Za-z])"
)
_SIGNED_TRIGGERS = (
    rb"[0-9]{4}[^0-9A-Za-z]{1,8}[0-9]{4,6}[^0-9A-Za-z]{1,8}[0-9]{4}",
    rb"(?:[0-9][^0-9A-Za-z\s]){12}[0-9]",
)
_SIGNED_SHAPES = frozenset({(4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 6, 5), (4, 6, 4), *((1,) * n for n in range(14, 20))})
_IS_ONE_SIGN = re.compile(_ONE_SIGN)
_BEFORE_LIST = frozenset("[{")
CARD_NAMED = (
    r"\bcards?\b|creditcard|\bvisa\b|master ?card|\bamex\b|american express|\bmaestro\b|kreditkarte"
    r"|\bkarten?(?:nummer)?\b|carte (?:bancaire|bleue|de cr)|tarjeta|cart[ãa]o|carta di cr"
    r"|карт|信用卡|银行卡|卡号|卡號|カ[-ー]ド|카드"
)
_DIGITS = re.compile(r"[0-9]+")
_PLAIN = str.maketrans("OoIl|", "00111")

_USUAL_SHAPES = frozenset(
    {(4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 6, 5), (4, 6, 4), (4, 4, 5), (4, 4, 4, 3),
     (4, 4, 4, 2), (4, 4, 4), (6, 13)}
)  # fmt: skip
"""Groupings in use: they are found also beside other numbers."""
_CERTAIN_SHAPES = frozenset({(4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 6, 5)})
"""Groupings that hardly anything else has."""
_MATRIX_GROUPS, _MATRIX_ROWS, _MAX_MATRIX_GROUPS = 7, 3, 64
_CHANCE_RATIO = 0.035
"""Share of the numbers of sixteen digits that lie in an issuer's range and pass the check by chance."""
_HAS_DIGIT = re.compile(r"[0-9]")
_USUAL_LENGTHS = frozenset({14, 15, 16})
"""Of nearly all cards that are in use."""
_EAN_DIGITS = 13
_LINE_ENDS = frozenset({"\n", "\r\n"})

_RANGES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("0604", "0604", (12, 13, 14, 15, 16, 17, 18, 19)),  # Maestro
    ("2200", "2204", (16, 17, 18, 19)),  # Mir
    ("2221", "2720", (16,)),  # Mastercard
    ("3000", "3059", (14, 16, 17, 18, 19)),  # Diners Club
    ("3095", "3095", (14, 16, 17, 18, 19)),
    ("3400", "3499", (15,)),  # American Express
    ("3528", "3589", (16, 17, 18, 19)),  # JCB
    ("3600", "3699", (14, 15, 16, 17, 18, 19)),
    ("3700", "3799", (15,)),
    ("3800", "3999", (14, 16, 17, 18, 19)),
    ("4000", "4999", (13, 16, 18, 19)),  # Visa and co-badged
    ("5018", "5020", (12, 13, 14, 15, 16, 17, 18, 19)),  # Maestro, Dankort
    ("5038", "5038", (12, 13, 14, 15, 16, 17, 18, 19)),
    ("5060", "5067", (16, 18, 19)),  # Verve, Elo
    ("5078", "5079", (16, 18, 19)),  # Meeza, Verve
    ("5080", "5089", (16,)),  # RuPay
    ("5090", "5099", (16,)),  # Elo
    ("5100", "5599", (16,)),  # Mastercard
    ("5610", "5610", (16,)),  # Bankcard
    ("5614", "5614", (16,)),  # Uzcard
    ("5888", "5888", (16,)),  # Mada
    ("5893", "5893", (12, 13, 14, 15, 16, 17, 18, 19)),  # Maestro
    ("5895", "5896", (16,)),  # Naranja, Cabal
    ("6000", "6099", (16, 17, 18, 19)),  # Discover, RuPay, Hipercard
    ("6200", "6299", (16, 17, 18, 19)),  # UnionPay
    ("6304", "6304", (12, 13, 14, 15, 16, 17, 18, 19)),  # Maestro
    ("6360", "6399", (16, 17, 18, 19)),  # Elo, InstaPayment
    ("6440", "6599", (16, 17, 18, 19)),  # Discover, RuPay, Troy
    ("6703", "6703", (16, 17, 18, 19)),  # Bancontact
    ("6706", "6709", (16, 17, 18, 19)),  # Laser
    ("6759", "6763", (12, 13, 14, 15, 16, 17, 18, 19)),  # Maestro
    ("6767", "6767", (16, 18, 19)),  # Solo
    ("6771", "6771", (16, 17, 18, 19)),  # Laser
    ("8100", "8299", (16, 17, 18, 19)),  # UnionPay, RuPay
    ("8600", "8600", (16,)),  # Uzcard
    ("9051", "9051", (16,)),  # ArCa
    ("9112", "9112", (16,)),  # Belkart
    ("9682", "9682", (16,)),  # Mada
    ("9704", "9704", (16, 19)),  # Napas
    ("9792", "9792", (16,)),  # Troy
    ("9860", "9860", (16,)),  # Humo
)
_STARTS = tuple(low for low, _, _ in _RANGES)


def luhn_holds(digits: str) -> bool:
    """Whether the check digit of `digits` is right (ISO/IEC 7812-1, annex B)."""
    total = sum(map(int, digits[-1::-2]))
    for digit in digits[-2::-2]:
        doubled = 2 * int(digit)
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0


def lengths_of(prefix: str) -> tuple[int, ...]:
    """Lengths of the numbers that begin with these four digits; none where no issuer does."""
    index = bisect_right(_STARTS, prefix) - 1
    return _RANGES[index][2] if index >= 0 and prefix <= _RANGES[index][1] else ()


def find(text: str, tick: Tick) -> Iterator[Span]:
    """Cards in `text`."""
    for widest in _RUN.finditer(text):
        tick()
        origin = widest.start()
        taken = bytearray(widest.end() - origin)
        is_plain = not any(char in widest.group() for char in "OoIl|")
        for run_pattern, group_pattern in _READINGS[:1] if is_plain else _READINGS:
            for run in run_pattern.finditer(text, *widest.span()):
                groups = [match.span() for match in group_pattern.finditer(text, *run.span())]
                for start, end in _cards_among(text, groups, tick):
                    if not any(taken[start - origin : end - origin]):
                        taken[start - origin : end - origin] = b"\1" * (end - start)
                        yield start, end


def _find_spread(text: str, tick: Tick) -> Iterator[Span]:
    """Cards with wide blanks between the groups, where no other number stands beside them as in a table."""
    for match in _SPREAD.finditer(text):
        tick()
        groups = [group.span() for group in _DIGITS.finditer(text, *match.span())]
        shape = tuple(end - start for start, end in groups)
        digits = "".join(text[start:end] for start, end in groups)
        is_column = all("\n" in text[groups[i][1] : groups[i + 1][0]] for i in range(len(groups) - 1))
        if shape not in _USUAL_SHAPES or is_column or len(digits) not in lengths_of(digits[:4]):
            continue
        around = (
            text[max(0, match.start() - 16) : match.start()].rstrip()[-1:],
            text[match.end() : match.end() + 16].lstrip()[:1],
        )
        if _is_number(digits) and not any(char.isdigit() for char in around):
            yield match.span()


def _find_signed(text: str, tick: Tick) -> Iterator[Span]:
    """Cards with other signs between the groups: one sign throughout and no more numbers in the row, or any where a
    word says that it is a card. Four numbers with commas are mostly a list, and one in ten passes the check."""
    for match in _SIGNED.finditer(text):
        tick()
        groups = [group.span() for group in _DIGITS.finditer(text, *match.span())]
        shape = tuple(end - start for start, end in groups)
        gaps = {text[groups[i][1] : groups[i + 1][0]] for i in range(len(groups) - 1)}
        digits = "".join(text[start:end] for start, end in groups)
        if shape not in _SIGNED_SHAPES or len(digits) not in lengths_of(digits[:4]) or not _is_number(digits):
            continue
        if _is_one_row(text, *match.span(), gaps) or named(text, *match.span(), (CARD_NAMED,)):
            yield match.span()


def _is_one_row(text: str, start: int, end: int, gaps: set[str]) -> bool:
    """Whether one sign parts the groups, and no other number is parted from them by it."""
    sign = next(iter(gaps))
    if len(gaps) > 1 or not _IS_ONE_SIGN.fullmatch(sign) or text[max(0, start - 1) : start] in _BEFORE_LIST:
        return False
    before, after = text[max(0, start - 3) : start].rstrip(" "), text[end : end + 3]
    comes_before = before.endswith(sign) and before[-2:-1].isdigit()
    return not comes_before and not (after.startswith(sign) and after[1:].lstrip(" ")[:1].isdigit())


def _cards_among(text: str, groups: list[Span], tick: Tick) -> Iterator[Span]:
    """Cards that begin and end at group boundaries of one run of digits; after a hit, the search goes on behind it."""
    first = 0
    while first < len(groups):
        tick()
        count = _groups_of_card(text, groups, first)
        if count:
            yield groups[first][0], groups[first + count - 1][1]
        first += count or 1


def _groups_of_card(text: str, groups: list[Span], first: int) -> int:
    """How many groups from `first` make the longest card; 0 for none."""
    lengths = lengths_of("".join(text[start:end] for start, end in groups[first : first + 4])[:4].translate(_PLAIN))
    size = count = 0
    for last in range(first, min(first + _MAX_DIGITS, len(groups)) if lengths else first):
        size += groups[last][1] - groups[last][0]
        if size > _MAX_DIGITS:
            break
        if size in lengths:
            digits = "".join([text[start:end] for start, end in groups[first : last + 1]])
            if _is_number(digits) and _is_written_as_card(text, groups, first, last):
                count = last - first + 1
    return count


def _is_number(digits: str) -> bool:
    """Whether digits, some perhaps written as letters, are a number with the right check digit."""
    plain = digits.translate(_PLAIN)
    return len(set(plain)) > 1 and luhn_holds(plain) and 2 * sum(map(str.isdigit, digits)) >= len(digits)


def _texts(text: str, groups: list[Span], first: int, last: int) -> list[str]:
    return [text[start:end] for start, end in groups[first : last + 1]]


def _is_of_a_matrix(text: str, groups: list[Span], first: int, last: int) -> bool:
    """Whether a number of the usual form is a piece of a table: rows of as many groups of one size, and no more cards
    among them than chance would have. A single long row is none: cards stand there beside dates and codes."""
    gap = text[groups[first][1] : groups[first + 1][0]]
    size = groups[first][1] - groups[first][0]

    def extent(is_next: Callable[[int], bool]) -> Span:
        left, right = first, last
        while left > 0 and last - left < _MAX_MATRIX_GROUPS and is_next(left):
            left -= 1
        while right + 1 < len(groups) and right - first < _MAX_MATRIX_GROUPS and is_next(right + 1):
            right += 1
        return left, right + 1

    def is_of_size(at: int) -> bool:
        return all(end - start == size for start, end in groups[at - 1 : at + 1])

    left, right = extent(lambda at: is_of_size(at) and text[groups[at - 1][1] : groups[at][0]] == gap)
    width = right - left
    if width < _MATRIX_GROUPS:
        return False
    left, right = extent(is_of_size)
    ends = [at for at in range(left, right) if at + 1 == right or "\n" in text[groups[at][1] : groups[at + 1][0]]]
    widths = [end - start for start, end in pairwise((left - 1, *ends))]
    if widths.count(width) < _MATRIX_ROWS:
        return False
    numbers = ["".join(_texts(text, groups, at, at + 3)) for at in range(left, right - 3)]
    expected = _CHANCE_RATIO * len(numbers)
    return sum(map(_is_card, numbers)) <= expected + 2 * sqrt(expected) + 0.5


def _is_likely(text: str, start: int, end: int) -> bool:
    """Whether a bare number is a card rather than an article, a shipment or an account. What stands beside it never
    counts against it: anybody could put other numbers there. The lengths of most cards always count; those that few
    have count unless a sign or a word says of this number that it is another, or it is an article's by its own
    check digit."""
    length = end - start
    if length in _USUAL_LENGTHS or text.startswith("62", start) or named(text, start, end, (CARD_NAMED,)):
        return True
    if length == _EAN_DIGITS and ean.is_valid(text[start:end]):
        return False
    return not (is_joined(text, start, end) or is_other_number(text, start, end))


def _is_card(number: str) -> bool:
    return len(number) in lengths_of(number[:4]) and _is_number(number)


def _is_written_as_card(text: str, groups: list[Span], first: int, last: int) -> bool:
    """Whether the grouping is one that stands for a single number, rather than for a list or a measurement."""
    shape = tuple(end - start for start, end in groups[first : last + 1])
    start, end = groups[first][0], groups[last][1]
    gaps = {text[groups[i][1] : groups[i + 1][0]] for i in range(first, last)}
    if inside_uuid(text, start, end) or (gaps and gaps <= _LINE_ENDS):
        return False
    if len(shape) == 1:
        is_fraction = start >= 2 and text[start - 1] == "." and text[start - 2].isdigit()
        return not is_fraction and not inside_code(text, start, end) and _is_likely(text, start, end)
    is_named = named(text, start, end, (CARD_NAMED,))
    if shape in _USUAL_SHAPES:
        if is_named or _is_of_a_matrix(text, groups, first, last):
            return is_named
        is_column = any("\t" in gap or len(gap) > 1 for gap in gaps) or (len(gaps) > 1 and gaps & _LINE_ENDS)
        is_certain = shape in _CERTAIN_SHAPES and not is_column
        return is_certain or not is_in_row(text, start, end)
    if first > 0 or last < len(groups) - 1 or not all(map(_HAS_DIGIT.search, _texts(text, groups, first, last))):
        return False
    # Any other grouping must stand alone, in groups of about one size. Points, slashes and line ends mix only in
    # addresses, dates, decimals and tables.
    if len(shape) == 2:
        return gaps <= {" ", "-"}
    if max(shape) - min(shape) > 2 and any(size % 4 for size in shape) and not is_named:
        return False
    return len(gaps) == 1 or not any(sign in gap for gap in gaps for sign in "./\r\n")


RECOGNISERS = (
    Recogniser("card", PrivacyClass.PERSONAL, (_TRIGGER,), find),
    Recogniser("card", PrivacyClass.PERSONAL, (_SPREAD_TRIGGER,), _find_spread),
    Recogniser("card", PrivacyClass.PERSONAL, _SIGNED_TRIGGERS, _find_signed),
)
