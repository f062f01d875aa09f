"""Placeholders: one for each value, back to the value in any split, and never one that the caller wrote."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.privacy import placeholders as module
from router.privacy.answers import as_it_is, json_written
from router.privacy.placeholders import (
    MAX_PLACEHOLDER_CHARS,
    Placeholders,
    Restorer,
    Room,
    TooManyValues,
    names_said,
)


def test_the_same_value_keeps_its_placeholder_in_any_grouping() -> None:
    known = Placeholders()
    assert known.stand_in("card", "4111 1111 1111 1111") == "[CARD_1]"
    assert known.stand_in("card", "4111-1111-1111-1111") == "[CARD_1]"
    assert known.stand_in("card", "４１１１1111 11111111") == "[CARD_1]"
    assert known.stand_in("card", "5555 5555 5555 4444") == "[CARD_2]"
    assert known.stand_in("email", "a-b@example.org") == "[EMAIL_1]"
    assert known.stand_in("email", "ab@example.org") == "[EMAIL_2]"


def test_what_the_caller_wrote_is_never_given_out() -> None:
    known = Placeholders()
    known.reserve(names_said(["see [CARD_1] and [card_2]"]))
    assert known.stand_in("card", "4111111111111111") == "[CARD_3]"
    assert known.restored("[CARD_1] [CARD_3]", as_it_is) == "[CARD_1] 4111111111111111"


@pytest.mark.parametrize(
    "written",
    [
        "<EMAIL_1>", "{EMAIL_1}", "EMAIL_1", "(email_1)", "［EMAIL_1］", "[EMAIL\u200b_1]", "&#91;EMAIL&#95;1&#93;",
        "%5BEMAIL_1%5D", "%255BEMAIL%255F1%255D", "\\u005bEMAIL_1\\u005d", "\\x5bEMAIL\\x5f1]", r"\[EMAIL\_1\]",
        "[ＥＭＡＩＬ_１]",
    ],
)  # fmt: skip
def test_what_the_caller_wrote_in_other_signs_is_not_given_out_either(written: str) -> None:
    known = Placeholders()
    known.reserve(names_said([f"my form says {written}."]))
    assert known.stand_in("email", "bob@example.org") == "[EMAIL_2]"


def test_restoring_reads_what_models_make_of_a_placeholder() -> None:
    known = Placeholders()
    known.stand_in("us_ssn", "123-45-6789")
    for said in ("[US_SSN_1]", "[us_ssn_1]", r"[US\_SSN\_1]", r"[US\_SSN\_1\]"):
        assert known.restored(f"a {said}.", as_it_is) == "a 123-45-6789."
    for said in ("[US_SSN_2]", "US_SSN_1", "[US_SSN]", "[US SSN 1]"):
        assert known.restored(said, as_it_is) == said


def test_in_json_a_value_is_written_with_its_escapes() -> None:
    known = Placeholders()
    value = 'p"a\\ss\nword'
    name = known.stand_in("password", value)
    assert json.loads(known.restored(json.dumps({"x": f"<{name}>"}), json_written)) == {"x": f"<{value}>"}


@given(st.text("[]_ACR12D \\x", max_size=60), st.lists(st.integers(1, 5), max_size=60))
def test_any_split_restores_what_the_whole_text_restores(text: str, sizes: list[int]) -> None:
    known = Placeholders()
    known.stand_in("card", "4111111111111111")
    text = text.replace("x", "[CARD_1]")
    restorer, out, at = Restorer(known, as_it_is), "", 0
    for size in [*sizes, len(text)]:
        out += restorer.feed(text[at : at + size])
        at += size
    assert out + restorer.end() == known.restored(text, as_it_is)


def test_what_is_held_back_is_bounded() -> None:
    restorer = Restorer(Placeholders(), as_it_is)
    fed = "[" + "A" * 10_000
    out = "".join(restorer.feed(char) for char in fed)
    assert len(out) >= len(fed) - MAX_PLACEHOLDER_CHARS
    assert out + restorer.end() == fed


def test_a_full_map_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUES", 2)
    known = Placeholders()
    known.stand_in("card", "1")
    known.stand_in("card", "2")
    known.stand_in("card", "1")
    with pytest.raises(TooManyValues):
        known.stand_in("card", "3")
    with pytest.raises(TooManyValues):
        Placeholders(Room(10)).stand_in("key", "a" * 11)


def test_values_are_not_shown() -> None:
    known = Placeholders()
    known.stand_in("card", "4111111111111111")
    assert "4111" not in repr(known) + str(known)
