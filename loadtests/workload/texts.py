"""Writes prompts of a wanted length from common words, about one token each, so that no cache answers for the model."""

from __future__ import annotations

import random

_LIST = (
    "river bridge bread wind clock star salt map tree music ship glass paper stone light water garden winter summer "
    "market village kitchen window story letter mountain forest island harbour teacher doctor farmer painter engine "
    "wheel train road field cloud rain snow fire metal wood cotton colour sound silence morning evening question "
    "answer number table chair house door wall floor roof corner street city country people child friend family "
    "simple small large quick slow early late warm cold bright dark quiet heavy empty full open closed common rare"
)
_WORDS = _LIST.split()
_OPENINGS = (
    "Tell me one short fact about",
    "Explain in two sentences",
    "Write a short note on",
    "Compare in a few words",
    "Give one reason for",
)


def question(dice: random.Random, tokens: int) -> str:
    """A question of about `tokens` tokens."""
    opening = dice.choice(_OPENINGS)
    return f"{opening} {words(dice, max(2, tokens - len(opening.split())))}."


def words(dice: random.Random, count: int) -> str:
    """`count` words in sentences of twelve."""
    drawn = dice.choices(_WORDS, k=count)
    return ". ".join(" ".join(drawn[start : start + 12]) for start in range(0, count, 12))
