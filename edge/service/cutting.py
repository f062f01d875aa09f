"""Cuts a text that is too long for one vector to the tokens that fit, and leaves it the end that every text has.

A tokenizer may put tokens around each text. With pooling by the last token the one at the end is where the vector is
read, so a text without it would get a vector of another kind, which is near no other.
"""

from __future__ import annotations


def cut(ids: list[int], bare: list[int], limit: int) -> list[int]:
    """At most `limit` of the tokens `ids` of a text, of which `bare` are the text's own: its beginning, and whatever
    the tokenizer puts before and after every text. A tokenizer that does more than put tokens around keeps no end."""
    added = len(ids) - len(bare)
    before = next((at for at in range(added + 1) if ids[at : at + len(bare)] == bare), added)
    after = len(ids) - before - len(bare)
    return ids[: max(0, limit - after)] + ids[len(ids) - after :] if len(ids) > limit else ids
