"""Which tier comes first over time: objectives, hysteresis, and trials of what nobody has measured."""

from __future__ import annotations

from router.policy.decision import decide
from router.policy.model import Mode, Reason
from shared.fleet import BackendSnapshot, Incumbent, Zone
from tests.router.policy.builders import NOW_MS, backend, facts, fleet, policy

CLOUD = backend("cloud", Zone.CLOUD)


def _edge(ttft_ms: float) -> BackendSnapshot:
    """An idle edge whose first token for 100 prompt tokens is predicted after `ttft_ms`."""
    return backend("edge", prefill_tokens_per_s=100_000.0 / ttft_ms)


def _first(*backends: BackendSnapshot, incumbent: Incumbent | None = None, mode: Mode = Mode.PREFER_EDGE) -> str:
    decision = decide(facts(), fleet(*backends, incumbent=incumbent), policy(mode), NOW_MS)
    return decision.candidates[0].backend_id


def test_the_edge_is_taken_while_it_meets_the_objective_even_when_the_cloud_is_faster() -> None:
    assert _first(_edge(1_900), CLOUD) == "edge"


def test_an_edge_that_misses_the_objective_yields_to_a_cloud_that_meets_it() -> None:
    decision = decide(facts(), fleet(_edge(2_100), CLOUD), policy(), NOW_MS)
    assert decision.candidates[0].backend_id == "cloud"
    assert decision.reason is Reason.EDGE_TOO_SLOW
    slow_decode = backend("edge", decode_tokens_per_s=5.0)
    assert _first(slow_decode, CLOUD) == "cloud"


def test_where_both_miss_the_objective_the_least_total_wins() -> None:
    slow_cloud = backend("cloud", Zone.CLOUD, ttft_ms=9_000.0)
    assert _first(_edge(3_000), slow_cloud) == "edge"
    assert _first(_edge(30_000), slow_cloud) == "cloud"


def test_a_queue_counts_as_waiting_time() -> None:
    queued = backend("edge", slots_busy=2, queued=3)
    idle = backend("edge-2", prefill_tokens_per_s=200.0)
    assert _first(queued, idle) == "edge-2"


def test_a_prompt_of_another_size_reads_its_own_average() -> None:
    by_size = backend("cloud", Zone.CLOUD, ttft_ms=100.0, ttft_ms_by_prompt=(200.0, None, 5_000.0, None))
    predicted = [
        decide(facts(prompt_tokens=n, max_tokens=1), fleet(by_size), policy(), NOW_MS).candidates[0].predicted_ttft_ms
        for n in (256, 257, 2_000)
    ]
    assert predicted == [200.0, 100.0, 5_000.0]


def test_after_leaving_the_edge_it_must_beat_the_objective_by_the_margin_to_be_taken_again() -> None:
    left_long_ago = Incumbent("cloud", NOW_MS - 60_000)
    assert _first(_edge(1_900), CLOUD, incumbent=left_long_ago) == "cloud"
    assert _first(_edge(1_500), CLOUD, incumbent=left_long_ago) == "edge"


def test_a_tier_is_kept_for_the_dwell_time() -> None:
    assert _first(_edge(100), CLOUD, incumbent=Incumbent("cloud", NOW_MS - 4_999)) == "cloud"
    assert _first(_edge(100), CLOUD, incumbent=Incumbent("cloud", NOW_MS - 5_000)) == "edge"


def test_holding_back_never_sends_anyone_to_a_tier_that_is_too_slow() -> None:
    slow_cloud = backend("cloud", Zone.CLOUD, ttft_ms=9_000.0)
    assert _first(_edge(100), slow_cloud, incumbent=Incumbent("cloud", NOW_MS)) == "edge"


def test_fastest_keeps_its_tier_against_a_gain_below_the_margin() -> None:
    a_little_faster = backend("cloud", Zone.CLOUD, ttft_ms=200.0)
    edge = _edge(250)
    assert _first(edge, a_little_faster, mode=Mode.FASTEST) == "cloud"
    assert _first(edge, a_little_faster, mode=Mode.FASTEST, incumbent=Incumbent("edge", 0)) == "edge"


def test_flapping_figures_switch_the_tier_at_most_once_a_dwell_time() -> None:
    incumbent: Incumbent | None = None
    switches = []
    for step in range(600):
        now_ms = NOW_MS + step * 100
        edge = backend("edge", prefill_tokens_per_s=100_000.0 / (2_500 if step % 2 else 500), received_ms=now_ms)
        cloud = backend("cloud", Zone.CLOUD, received_ms=now_ms)
        decision = decide(facts(), fleet(edge, cloud, incumbent=incumbent), policy(), now_ms)
        tier = decision.candidates[0].zone.tier
        if incumbent is None or incumbent.tier != tier:
            switches += [now_ms] if incumbent is not None else []
            incumbent = Incumbent(tier, now_ms)
    returns = switches[1::2]
    assert switches
    assert all(back - left >= 5_000 for left, back in zip(switches[::2], returns, strict=False))
    assert len(switches) <= 2 * 60_000 / 5_000


def _new(backend_id: str, in_flight: int = 0) -> BackendSnapshot:
    return backend(backend_id, prefill_tokens_per_s=None, decode_tokens_per_s=None, slots_total=None, queued=None,
                   slots_busy=None, queue_limit=None, in_flight=in_flight)  # fmt: skip


def test_fs_03_a_new_device_gets_trial_traffic_bounded_by_its_slots() -> None:
    known = _edge(500)
    trial = decide(facts(), fleet(known, _new("new")), policy(), NOW_MS)
    assert trial.candidates[0].backend_id == "new"
    assert trial.candidates[0].predicted_ttft_ms is None
    assert trial.reason is Reason.TRIAL
    busy = decide(facts(), fleet(known, _new("new", in_flight=1)), policy(), NOW_MS)
    assert [c.backend_id for c in busy.candidates] == ["edge", "new"]
    assert busy.reason is Reason.PREFERRED_TIER


def test_a_fleet_of_which_nothing_is_known_still_serves_the_preferred_tier_first() -> None:
    cloud = backend("cloud", Zone.CLOUD, ttft_ms=None, decode_tokens_per_s=None)
    decision = decide(facts(), fleet(cloud, _new("edge")), policy(), NOW_MS)
    assert [c.backend_id for c in decision.candidates] == ["edge", "cloud"]
    assert decision.reason is Reason.PREFERRED_TIER


def test_an_unmeasured_cloud_is_no_reason_to_leave_an_edge_that_is_fast_enough() -> None:
    cloud = backend("cloud", Zone.CLOUD, ttft_ms=None)
    assert _first(cloud, _edge(500)) == "edge"
    assert _first(cloud, _edge(5_000)) == "cloud"


def test_equal_backends_are_ordered_by_load_and_then_by_name() -> None:
    twins = [backend("b", in_flight=1), backend("c"), backend("a", in_flight=1)]
    decision = decide(facts(), fleet(*twins), policy(), NOW_MS)
    assert [c.backend_id for c in decision.candidates] == ["c", "a", "b"]
