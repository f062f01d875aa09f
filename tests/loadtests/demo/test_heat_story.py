"""The verdict over a run under heat: what counts as a fault, and what the table says."""

from __future__ import annotations

import pytest

from loadtests.demo.expectations import Observed
from loadtests.demo.heat_story import Asked, Look, changes, faults, rows, summary

GOOD = Observed(200, "public", "edge", "preferred_tier", ttft_ms=100.0, text="Paris")
CLOUD = Observed(200, "public", "cloud", "edge_unavailable", ttft_ms=50.0, text="Paris")
REFUSED = Observed(503, "personal", code="privacy_unavailable")


def _looks(*levels: tuple[float, str]) -> list[Look]:
    """A look every second; each level from its second on, to 20 s after the last."""
    end = int(levels[-1][0]) + 20
    return [
        Look(float(s), next(level for at, level in reversed(levels) if at <= s), slots=2, derate_ratio=1.0)
        for s in range(end)
    ]


WELL = _looks((0, "nominal"), (20, "warm"), (40, "hot"), (60, "critical"), (80, "hot"), (95, "warm"), (110, "nominal"))


def _faults(looks: list[Look], *asked: Asked, has_cloud: bool = True) -> list[str]:
    return faults(looks, asked, has_cloud=has_cloud, dwell_s=10.0, lag_s=1.0)


def test_a_run_in_which_all_was_well() -> None:
    asked = (Asked(1, 2, False, GOOD), Asked(61, 62, False, CLOUD), Asked(65, 66, True, REFUSED))
    assert _faults(WELL, *asked) == []
    assert summary(WELL, asked)["tiers"] == {"cloud": 1, "edge": 1}
    assert summary(WELL, asked)["levels"][:3] == ["nominal", "warm", "hot"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Asked(5, 6, False, Observed(503, "public", code="no_capacity")), "503 no_capacity"),
        (Asked(5, 6, False, Observed(0, failure="unreachable")), "unreachable"),
        (Asked(5, 6, False, Observed(200, "public", "edge", failure="connection_cut")), "connection_cut"),
        (Asked(61, 62, False, Observed(503, "public", code="no_capacity")), "503 no_capacity"),
        (Asked(61, 62, True, Observed(200, "personal", "cloud", text="x")), "personal request went to the cloud"),
        (Asked(5, 6, True, REFUSED), "503 privacy_unavailable"),
        (Asked(61, 62, True, Observed(500, "personal", code="internal_error")), "500 internal_error"),
    ],
)
def test_what_must_not_happen(asked: Asked, words: str) -> None:
    found = _faults(WELL, asked)
    assert len(found) == 1
    assert words in found[0]


def test_without_a_cloud_a_critical_device_may_refuse_everyone() -> None:
    assert _faults(WELL, Asked(61, 62, False, Observed(503, "public", code="no_capacity")), has_cloud=False) == []


def test_two_changes_within_a_dwell_are_a_fault() -> None:
    looks = _looks((0, "nominal"), (20, "warm"), (24, "nominal"))
    assert len(changes(looks)) == 2
    [found] = _faults(looks)
    assert "within 4.0 s" in found


def test_a_device_that_stays_hot_has_not_recovered() -> None:
    assert _faults(_looks((0, "nominal"), (20, "hot"))) == ["the device did not recover: it is hot"]
    assert _faults([]) == ["the device did not recover: it is unseen"]


def test_a_row_is_ten_seconds() -> None:
    asked = [Asked(0, 1, False, GOOD), Asked(0, 2, False, CLOUD), Asked(0, 3, True, GOOD), Asked(0, 4, True, REFUSED)]
    table = rows(WELL, asked)
    assert [row.from_s for row in table][:3] == [0.0, 10.0, 20.0]
    first = table[0]
    assert (first.level, first.answered, first.cloud_ratio, first.ttft_p50_ms) == ("nominal", 3, 0.5, 100.0)
    assert (table[2].level, table[2].answered, table[2].cloud_ratio, table[2].ttft_p50_ms) == ("warm", 0, None, None)
