"""What is left of a text that is too long, for tokenizers that put tokens before it, after it, both or neither."""

from __future__ import annotations

import pytest

from edge.service.cutting import cut

BEGIN, END = 1, 2
TEXT = [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("ids", "limit", "kept"),
    [
        (TEXT, 4, [10, 11, 12, 13]),
        ([*TEXT, END], 4, [10, 11, 12, END]),
        ([BEGIN, *TEXT], 4, [BEGIN, 10, 11, 12]),
        ([BEGIN, *TEXT, END], 4, [BEGIN, 10, 11, END]),
        ([END, *TEXT, END], 4, [END, 10, 11, END]),  # one token for both, as several families have
        ([BEGIN, *TEXT, 7, END], 4, [BEGIN, 10, 7, END]),
        ([BEGIN, *TEXT, END], 1, [END]),
        ([*TEXT, END], 7, [*TEXT, END]),  # it fits
        ([9, 10, 12, 13, 14, 15, END], 4, [9, 10, 12, 13]),  # other tokens than the text has by itself
        ([10, 11, 12, 13], 2, [10, 11]),
    ],
)
def test_what_is_put_around_every_text_stays(ids: list[int], limit: int, kept: list[int]) -> None:
    assert cut(ids, TEXT, limit) == kept


def test_a_text_that_repeats_a_token_keeps_its_end() -> None:
    assert cut([5, 5, 5, 5, END], [5, 5, 5, 5], 3) == [5, 5, END]
