"""The corpus of the scanner's benchmark holds what it says, and the scanner leaves its numbers alone."""

from __future__ import annotations

import random

import pytest

from loadtests.bench.scanner_corpus import KINDS, LIKE_CARDS, negatives, positives
from loadtests.bench.scanner_numbers import NUMBERS
from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner()


_LIKE_CARDS = LIKE_CARDS.removeprefix("numbers: ")


@pytest.mark.parametrize("sort", [sort for sort in NUMBERS if sort != _LIKE_CARDS])
def test_numbers_of_logs_and_tables_are_left_alone(scanner: Scanner, sort: str) -> None:
    """A chance hit or two in the texts of a sort, which hold thousands of numbers: three in a thousand of eleven
    digits are a Greek or an Estonian id by date and check digit, and no neighbour counts against them."""
    draw = random.Random(sort)
    found = [scanner.scan([TextPosition("t", NUMBERS[sort](draw))]).kinds for _ in range(40)]
    assert sum(map(bool, found)) <= 2, found


def test_numbers_that_could_be_cards_are_taken_for_nothing_else(scanner: Scanner) -> None:
    draw = random.Random(_LIKE_CARDS)
    found = [scanner.scan([TextPosition("t", NUMBERS[_LIKE_CARDS](draw))]).kinds for _ in range(40)]
    assert frozenset().union(*found) <= {"card"}


def test_every_kind_is_found_in_every_language(scanner: Scanner) -> None:
    draw = random.Random(7)
    for kind in KINDS:
        found = [kind.kind in scanner.scan([TextPosition("t", text)]).kinds for text in positives(kind, draw, 24)]
        assert sum(found) >= 23, kind.title or kind.kind


def test_negatives_are_of_all_sorts() -> None:
    sorts = {sort for sort, _ in negatives(random.Random(1), 200)}
    assert {"prose", "code", "log", "id"} < sorts
    assert {f"numbers: {name}" for name in NUMBERS} < sorts
