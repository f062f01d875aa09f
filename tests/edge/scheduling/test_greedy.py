"""Where greedy answers may differ, and where that is an error."""

from __future__ import annotations

import pytest

from edge.scheduling.greedy import NEAR_TIE_LOGPROB, Divergence, Step, divergence

PLAIN = (Step("The", 2.0), Step(" sea", 0.05), Step(" is", 1.5))


def test_the_same_words_are_no_divergence() -> None:
    assert divergence(PLAIN, ("The", " sea", " is")) is None
    assert divergence((), ()) is None


@pytest.mark.parametrize(
    ("other", "position", "allowed"),
    [
        (("The", " lake", " was"), 1, True),
        (("A", " sea", " is"), 0, False),
        (("The", " sea", " was"), 2, False),
        (("The", " sea"), 2, False),
        (("The", " sea", " is", "."), 3, False),
    ],
)
def test_the_first_difference_counts_and_only_a_near_tie_excuses_it(
    other: tuple[str, ...], position: int, allowed: bool
) -> None:
    found = divergence(PLAIN, other)
    assert found is not None
    assert (found.position, found.allowed) == (position, allowed)


def test_the_gap_itself_is_still_a_tie() -> None:
    assert Divergence(0, NEAR_TIE_LOGPROB).allowed
    assert not Divergence(0, NEAR_TIE_LOGPROB + 1e-9).allowed
