"""Shares of traffic over five minutes, and the last words about each backend."""

from __future__ import annotations

from router.fleet.traffic import Traffic


def test_shares_are_of_all_attempts_lately() -> None:
    traffic = Traffic()
    for _ in range(3):
        traffic.note(["edge-1"], [("cloud-1", "privacy")], "edge_preferred", 1_000)
    traffic.note(["edge-1", "cloud-1"], [], "edge_slow", 2_000)
    found = traffic.lately(3_000)
    assert (found["edge-1"].attempts, found["edge-1"].share_ratio) == (4, 0.8)
    assert (found["cloud-1"].share_ratio, found["cloud-1"].last_reason) == (0.2, "edge_slow")
    assert found["cloud-1"].last_rejection == "privacy"


def test_what_is_five_minutes_old_counts_no_more_and_its_words_stay() -> None:
    traffic = Traffic()
    traffic.note(["edge-1"], [], "edge_preferred", 0)
    assert traffic.lately(289_000)["edge-1"].attempts == 1
    after = traffic.lately(310_000)["edge-1"]
    assert (after.attempts, after.share_ratio, after.last_reason) == (0, None, "edge_preferred")


def test_a_large_fleet_does_not_fill_the_memory() -> None:
    traffic = Traffic()
    for n in range(30_000):
        traffic.note([f"edge-{n}"], [], "edge_preferred", 0)
    assert len(traffic.lately(0)) >= 20_000 and len(traffic.whole(0).reasons) == 20_000
