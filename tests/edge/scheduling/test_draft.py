"""SP-01: a draft speaks for a target only where every id means the same to both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge.scheduling.draft import Mismatch, Vocabulary, vocabulary_mismatch

TARGET = Vocabulary(tokens=128256, tokens_sha256="a" * 64, special_ids={"bos": 1, "eos": 2})


@pytest.mark.parametrize(
    ("draft", "mismatch"),
    [
        (TARGET, None),
        (replace(TARGET, special_ids={"eos": 2, "bos": 1}), None),
        (replace(TARGET, tokens=32000), Mismatch.SIZE),
        (replace(TARGET, tokens=128255), Mismatch.SIZE),
        (replace(TARGET, tokens_sha256="b" * 64), Mismatch.TEXT),
        (replace(TARGET, special_ids={"bos": 1, "eos": 3}), Mismatch.SPECIAL_IDS),
        (replace(TARGET, special_ids={"bos": 1}), Mismatch.SPECIAL_IDS),
        (replace(TARGET, special_ids={"bos": 1, "eos": 2, "eot": 4}), Mismatch.SPECIAL_IDS),
    ],
)
def test_sp_01_vocabularies_must_agree_in_size_text_and_special_ids(
    draft: Vocabulary, mismatch: Mismatch | None
) -> None:
    assert vocabulary_mismatch(TARGET, draft) is mismatch
    assert vocabulary_mismatch(draft, TARGET) is mismatch
