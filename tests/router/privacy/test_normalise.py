"""Folding: what becomes what, and where it came from."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.privacy import normalise
from router.privacy.normalise import Folder, plain_view, replaced_view

_UNTIMED = settings(deadline=None, max_examples=80)
"""A busy machine is no failure."""

FOLDER = Folder()


@pytest.mark.parametrize(
    ("sent", "folded"),
    [
        ("plain ASCII stays", "plain ASCII stays"),
        ("４２－ａ＠ｂ．ｃｏ", "42-a@b.co"),
        ("٤٢ ४२ 𝟒𝟐 ④②", "42 42 42 42"),
        ("4\u200b2\u200d\ufeff\u00ad\u2060\u202e3", "423"),
        ("4\u00a02\u30003\u20094", "4 2 3 4"),
        ("4\u20132\u20143\u22124\u2010", "4-2-3-4-"),
        ("4️⃣2️⃣", "42"),
        ("4\u03362\u0336", "42"),
        ("1О1 1о1 Ι Ӏ", "1O1 1o1 I I"),
        ("ﬁne ㎏", "fine kg"),
        ("中文，还是中文", "中文，还是中文"),
        ("josé", "josé"),
        ("😀 stays", "😀 stays"),
    ],
)
def test_folds(sent: str, folded: str) -> None:
    assert FOLDER.view(sent).text == folded


@_UNTIMED
@given(st.text(max_size=80))
def test_every_character_maps_to_a_place_that_holds_it(text: str) -> None:
    view = FOLDER.view(text)
    behind = 0
    for index, char in enumerate(view.text):
        start, end = view.to_sent((index, index + 1))
        assert 0 <= start < end <= len(text)
        assert start >= behind
        behind = start
        assert char in FOLDER.view(text[start:end]).text


@_UNTIMED
@given(st.text(max_size=80))
def test_folding_twice_changes_nothing_more(text: str) -> None:
    once = FOLDER.view(text).text
    assert FOLDER.view(once).text == once


def test_every_digit_of_every_script_becomes_ascii() -> None:
    digits = [chr(c) for c in range(0x110000) if unicodedata.decimal(chr(c), None) is not None]
    assert len(digits) > 600
    for digit in digits:
        assert FOLDER.view(digit).text == str(unicodedata.decimal(digit))


def test_replacements_compose() -> None:
    first = replaced_view(plain_view("ab--cd"), re.compile("--"), lambda m: "+")
    second = replaced_view(first, re.compile("[+]c"), lambda m: "xyz")
    assert second.text == "abxyzd"
    assert second.to_sent((0, 2)) == (0, 2)
    assert second.to_sent((3, 4)) == (2, 5)
    assert second.to_sent((5, 6)) == (5, 6)


def test_no_other_character_of_unicode_folds() -> None:
    """The ranges that are looked at leave out none that has another form, in this interpreter's version of Unicode."""
    looked_at = {code for codes in normalise._FOLDING for code in codes}
    others = [chr(code) for code in range(0x80, 0x110000) if code not in looked_at and not 0xD800 <= code < 0xE000]
    assert unicodedata.normalize("NFKC", "\n".join(others)) == "\n".join(others)
    assert {unicodedata.category(char) for char in others}.isdisjoint(normalise._FOLDING_CATEGORIES)
    assert normalise._OTHERS.isdisjoint(others)


def test_every_character_that_folds_is_looked_for() -> None:
    looked_for = set(normalise._foldable())
    letters = [chr(code) for codes in normalise._FOLDING for code in codes if code < 0x3400]
    assert {char for char in letters if normalise._fold(char) != char} <= looked_for
