"""The demo's table is the default policy, and its comparison accepts that and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtests.demo.expectations import ROWS, Expected, Observed, Row, Situation, judge
from loadtests.demo.play import Played, why_skipped


def observed_as(expected: Expected) -> Observed:
    good = expected.status == 200
    return Observed(
        status=expected.status,
        privacy_class=expected.privacy_class,
        tier=expected.tier,
        reason=min(expected.reasons, default="privacy_unavailable"),
        code=expected.code,
        ttft_ms=12.0 if good else None,
        text="Paris." if good else "",
    )


PAIRS = [(row, expected, True) for row in ROWS for expected in row.expected]
PAIRS += [(row, expected, False) for row in ROWS for expected in row.without_cloud]
IDS = [f"{row.situation}-{row.kind}-{expected.tier or expected.code}-{cloud}" for row, expected, cloud in PAIRS]


@pytest.mark.parametrize(("row", "expected", "has_cloud"), PAIRS, ids=IDS)
def test_what_policy_says_is_accepted_and_any_other_value_is_named(
    row: Row, expected: Expected, has_cloud: bool
) -> None:
    seen = observed_as(expected)
    assert judge(row, seen, has_cloud=has_cloud) is None
    for field, value in {"status": 418, "privacy_class": "secret", "code": "other"}.items():
        assert judge(row, replace(seen, **{field: value}), has_cloud=has_cloud) is not None, field
    if expected.status == 200:
        assert "empty" in str(judge(row, replace(seen, text=" "), has_cloud=has_cloud))
        assert "stall" in str(judge(row, replace(seen, failure="stall"), has_cloud=has_cloud))
        assert "reason" in str(judge(row, replace(seen, reason="fastest"), has_cloud=has_cloud))


def test_personal_content_is_never_expected_in_the_cloud() -> None:
    personal = [e for row in ROWS for e in (*row.expected, *row.without_cloud) if e.privacy_class == "personal"]
    assert personal
    assert all(expected.tier in (None, "edge") for expected in personal)


def test_an_answer_from_the_wrong_tier_is_wrong_even_with_the_right_reason() -> None:
    card = next(row for row in ROWS if row.kind == "card number" and row.situation is Situation.NORMAL)
    leaked = replace(observed_as(card.expected[0]), tier="cloud")
    assert judge(card, leaked, has_cloud=True) == "tier is cloud, policy says edge"


def test_without_a_cloud_only_rows_that_need_it_are_skipped() -> None:
    skipped = [row for row in ROWS if why_skipped(row, has_cloud=False, has_control=True)]
    assert {(row.kind, row.situation) for row in skipped} == {
        ("public", Situation.DEVICE_CRITICAL),
        ("public", Situation.EDGE_KILLED),
        ("public", Situation.CLOUD_KILLED),
    }
    assert not any(why_skipped(row, has_cloud=True, has_control=True) for row in ROWS)


def test_without_a_control_socket_only_the_normal_situation_is_played() -> None:
    played = [row for row in ROWS if not why_skipped(row, has_cloud=True, has_control=False)]
    assert {row.situation for row in played} == {Situation.NORMAL}


def test_a_skipped_row_is_neither_right_nor_wrong() -> None:
    assert Played(ROWS[0], skipped="needs the cloud tier").as_json()["as_policy_says"] is None
