"""Decisions case by case: tiers, reasons, rejections and the errors they lead to."""

from __future__ import annotations

import pytest

from router.policy.decision import decide
from router.policy.model import Decision, Mode, Reason, Rejection, Route
from router.policy.refusal import refusal
from shared.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PolicyBlocked,
    PrivacyUnavailable,
)
from shared.fleet import BackendState, Breaker, ThermalLevel, Zone
from shared.privacy import Action, PrivacyClass
from tests.router.policy.builders import ACTIONS, NOW_MS, backend, facts, fleet, policy, served

EDGE, CLOUD = backend("edge"), backend("cloud", Zone.CLOUD)
PERSONAL = PrivacyClass.PERSONAL


def _ids(decision: Decision) -> list[str]:
    return [c.backend_id for c in decision.candidates]


def _why(decision: Decision, backend_id: str) -> Rejection:
    return next(r.reason for r in decision.rejected if r.backend_id == backend_id)


def test_public_goes_to_the_preferred_edge_with_the_cloud_behind_it() -> None:
    decision = decide(facts(), fleet(CLOUD, EDGE), policy(), NOW_MS)
    assert _ids(decision) == ["edge", "cloud"]
    assert decision.reason is Reason.PREFERRED_TIER


@pytest.mark.parametrize("privacy_class", [PERSONAL, PrivacyClass.SECRET, PrivacyClass.UNKNOWN])
def test_pv_03_edge_only_leaves_the_edge_alone(privacy_class: PrivacyClass) -> None:
    decision = decide(facts(privacy_class), fleet(CLOUD, EDGE), policy(), NOW_MS)
    assert _ids(decision) == ["edge"]
    assert decision.reason is Reason.PRIVACY_REQUIRES_EDGE
    assert _why(decision, "cloud") is Rejection.PRIVACY
    assert decision.action is Action.EDGE_ONLY


def test_pv_03_block_refuses_on_every_tier() -> None:
    blocked = policy(
        actions={
            **ACTIONS,
            PERSONAL: Action.BLOCK,
            PrivacyClass.SECRET: Action.BLOCK,
            PrivacyClass.UNKNOWN: Action.BLOCK,
        }
    )
    decision = decide(facts(PERSONAL), fleet(CLOUD, EDGE), blocked, NOW_MS)
    assert decision.candidates == ()
    assert decision.reason is Reason.BLOCKED
    assert isinstance(refusal(decision, facts(PERSONAL)), PolicyBlocked)


@pytest.mark.parametrize(
    "failing",
    [
        backend("edge", state=BackendState.FAILED),
        backend("edge", state=BackendState.STARTING),
        backend("edge", state=BackendState.DRAINING),
        backend("edge", received_ms=NOW_MS - 3_001),
        backend("edge", breaker=Breaker.OPEN),
        backend("edge", cooling_until_ms=NOW_MS + 5_000),
        backend("edge", level=ThermalLevel.CRITICAL),
        backend("edge", slots_busy=2, queued=4),
        backend("edge", models=(served(model="other"),)),
    ],
    ids=lambda b: b.state if b.state is not BackendState.READY else f"{b.level}-{b.breaker}-{b.queued}-{b.received_ms}",
)
def test_pv_01_no_failure_of_the_edge_lets_personal_text_go_elsewhere(failing) -> None:  # type: ignore[no-untyped-def]
    """PV-01: one stable code, whatever is wrong with the edge."""
    decision = decide(facts(PERSONAL), fleet(failing, CLOUD), policy(), NOW_MS)
    assert decision.candidates == ()
    error = refusal(decision, facts(PERSONAL))
    assert isinstance(error, PrivacyUnavailable)
    assert (error.status, error.code) == (503, "privacy_unavailable")


def test_the_caller_cannot_send_personal_text_to_the_cloud() -> None:
    asked = facts(PERSONAL, Route.CLOUD)
    decision = decide(asked, fleet(EDGE, CLOUD), policy(), NOW_MS)
    assert decision.candidates == ()
    assert decision.reason is Reason.PRIVACY_UNAVAILABLE
    assert decision.allowed_zones == frozenset()
    assert _why(decision, "edge") is Rejection.ROUTE_OVERRIDE
    assert isinstance(refusal(decision, asked), PrivacyUnavailable)


@pytest.mark.parametrize(("route", "first"), [(Route.EDGE, "edge"), (Route.CLOUD, "cloud")])
def test_the_callers_route_narrows_public_requests(route: Route, first: str) -> None:
    decision = decide(facts(route=route), fleet(EDGE, CLOUD), policy(), NOW_MS)
    assert _ids(decision) == [first]
    assert decision.reason is Reason.ROUTE_OVERRIDE


@pytest.mark.parametrize(
    ("mode", "ids", "reason"),
    [
        (Mode.PREFER_EDGE, ["edge", "cloud"], Reason.PREFERRED_TIER),
        (Mode.PREFER_CLOUD, ["cloud", "edge"], Reason.PREFERRED_TIER),
        (Mode.ONLY_EDGE, ["edge"], Reason.PREFERRED_TIER),
        (Mode.ONLY_CLOUD, ["cloud"], Reason.PREFERRED_TIER),
        (Mode.FASTEST, ["cloud", "edge"], Reason.FASTEST),
    ],
)
def test_modes(mode: Mode, ids: list[str], reason: Reason) -> None:
    quick_cloud = backend("cloud", Zone.CLOUD, ttft_ms=50.0)
    decision = decide(facts(), fleet(EDGE, quick_cloud), policy(mode), NOW_MS)
    assert _ids(decision) == ids
    assert decision.reason is reason


def test_a_backend_that_a_mode_leaves_out_says_so() -> None:
    decision = decide(facts(), fleet(EDGE, CLOUD), policy(Mode.ONLY_EDGE), NOW_MS)
    assert _why(decision, "cloud") is Rejection.MODE


def test_a_hot_critical_edge_sheds_public_requests_to_the_cloud() -> None:
    decision = decide(facts(), fleet(backend("edge", level=ThermalLevel.CRITICAL), CLOUD), policy(), NOW_MS)
    assert _ids(decision) == ["cloud"]
    assert decision.reason is Reason.EDGE_UNAVAILABLE
    assert _why(decision, "edge") is Rejection.THERMAL_CRITICAL


def test_a_hot_edge_brings_its_output_cap() -> None:
    hot = backend("edge", level=ThermalLevel.HOT, output_cap_tokens=64)
    decision = decide(facts(), fleet(hot, CLOUD), policy(), NOW_MS)
    assert decision.output_cap_tokens == 64
    assert [c.output_cap_tokens for c in decision.candidates] == [64, None]


def test_unknown_heat_counts_as_warm() -> None:
    def predicted(level: ThermalLevel) -> float | None:
        return decide(facts(), fleet(backend("edge", level=level)), policy(), NOW_MS).candidates[0].predicted_tpot_ms

    assert predicted(ThermalLevel.UNKNOWN) == predicted(ThermalLevel.WARM)
    assert predicted(ThermalLevel.UNKNOWN) != predicted(ThermalLevel.NOMINAL)


def test_fs_01_a_silent_device_is_out_after_the_stale_time_and_back_with_its_next_beat() -> None:
    last = backend("edge", received_ms=NOW_MS)
    ages = {2_999: True, 3_000: True, 3_001: False}
    for age_ms, eligible in ages.items():
        decision = decide(facts(), fleet(last), policy(), NOW_MS + age_ms)
        assert bool(decision.candidates) is eligible
    assert _why(decision, "edge") is Rejection.STALE
    back = decide(facts(), fleet(backend("edge", received_ms=NOW_MS + 3_500)), policy(), NOW_MS + 3_600)
    assert _ids(back) == ["edge"]


def test_a_static_backend_that_never_reports_is_never_stale() -> None:
    assert _ids(decide(facts(), fleet(backend("edge", received_ms=None)), policy(), NOW_MS + 10**9)) == ["edge"]


def test_fs_03_all_devices_stale_is_no_capacity_with_the_reason_at_each() -> None:
    silent = [backend(f"edge-{n}", received_ms=NOW_MS - 10_000) for n in range(3)]
    decision = decide(facts(), fleet(*silent), policy(), NOW_MS)
    assert {r.reason for r in decision.rejected} == {Rejection.STALE}
    assert isinstance(refusal(decision, facts()), NoCapacity)


def test_fs_03_missing_load_figures_are_not_a_full_queue() -> None:
    mute = backend("edge", slots_total=None, slots_busy=None, queued=None, queue_limit=None)
    assert _ids(decide(facts(), fleet(mute), policy(), NOW_MS)) == ["edge"]


def test_queue_full_counts_what_this_router_has_open_there() -> None:
    """A report is up to a second old; requests sent since then count."""
    sent = backend("edge", slots_busy=0, queued=0, in_flight=6)
    assert _why(decide(facts(), fleet(sent), policy(), NOW_MS), "edge") is Rejection.QUEUE_FULL


def test_no_queue_at_all_is_full_when_the_slots_are() -> None:
    busy = backend("edge", slots_total=1, slots_busy=1, queue_limit=0)
    assert _why(decide(facts(), fleet(busy), policy(), NOW_MS), "edge") is Rejection.QUEUE_FULL


def test_half_open_takes_one_probe_at_a_time() -> None:
    probing = backend("edge", breaker=Breaker.HALF_OPEN, in_flight=1)
    assert _ids(decide(facts(), fleet(backend("edge", breaker=Breaker.HALF_OPEN)), policy(), NOW_MS)) == ["edge"]
    assert _why(decide(facts(), fleet(probing), policy(), NOW_MS), "edge") is Rejection.BREAKER_OPEN


@pytest.mark.parametrize(("wait_ms", "seconds"), [(2_100, 3), (3_000, 3), (1, 1)])
def test_fo_03_retry_after_is_the_rest_of_the_shortest_pause(wait_ms: int, seconds: int) -> None:
    cooling = [
        backend(f"cloud-{n}", Zone.CLOUD, cooling_until_ms=NOW_MS + wait_ms + n * 5_000) for n in range(2)
    ]  # fmt: skip
    decision = decide(facts(), fleet(*cooling), policy(), NOW_MS)
    assert refusal(decision, facts()).retry_after_s == seconds
    asked = facts(route=Route.CLOUD)
    beside_an_edge = decide(asked, fleet(EDGE, *cooling), policy(), NOW_MS)
    assert refusal(beside_an_edge, asked).retry_after_s == seconds


def test_an_unknown_model_is_404_and_a_starting_fleet_is_503() -> None:
    asked = facts(model="nobody-has-it")
    error = refusal(decide(asked, fleet(EDGE, CLOUD), policy(), NOW_MS), asked)
    assert isinstance(error, NotFound)
    assert (error.code, error.param) == ("model_not_found", "model")
    starting = backend("edge", state=BackendState.STARTING, models=())
    assert isinstance(refusal(decide(asked, fleet(starting), policy(), NOW_MS), asked), NoCapacity)
    assert isinstance(refusal(decide(asked, fleet(), policy(), NOW_MS), asked), NoCapacity)


def test_a_model_that_only_the_cloud_serves_is_privacy_unavailable_for_personal_text() -> None:
    asked = facts(PERSONAL, model="large")
    large = backend("cloud", Zone.CLOUD, models=(served(model="large"),))
    assert isinstance(refusal(decide(asked, fleet(EDGE, large), policy(), NOW_MS), asked), PrivacyUnavailable)


def test_cx_01_a_prompt_that_is_too_long_for_the_edge_goes_where_there_is_room() -> None:
    small = backend("edge", models=(served(2_048),))
    large = backend("cloud", Zone.CLOUD, models=(served(32_768),))
    likely = decide(facts(prompt_tokens=4_000), fleet(small, large), policy(), NOW_MS)
    assert _ids(likely)[0] == "cloud"
    certain = decide(facts(prompt_tokens=9_000), fleet(small, large), policy(), NOW_MS)
    assert _ids(certain) == ["cloud"]
    assert _why(certain, "edge") is Rejection.CONTEXT_TOO_SMALL


def test_cx_01_nothing_has_room_is_400_with_both_numbers() -> None:
    asked = facts(prompt_tokens=9_000, max_tokens=100)
    decision = decide(asked, fleet(backend("edge", models=(served(2_048),))), policy(), NOW_MS)
    error = refusal(decision, asked)
    assert isinstance(error, ContextLengthExceeded)
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "messages")
    assert "9100" in error.message
    assert "2048" in error.message


def test_tk_01_the_estimate_alone_never_refuses_what_might_fit() -> None:
    """The backend's own count decides: three bytes a token is only an estimate."""
    tight = backend("edge", models=(served(4_096),))
    assert _ids(decide(facts(prompt_tokens=5_000, max_tokens=64), fleet(tight), policy(), NOW_MS)) == ["edge"]


def test_an_output_without_a_limit_is_clamped_and_refuses_nobody() -> None:
    small = backend("edge", models=(served(64),))
    asked = facts(prompt_tokens=20, max_tokens=None)
    assert _ids(decide(asked, fleet(small), policy(default_output_tokens=500), NOW_MS)) == ["edge"]
    exact = facts(prompt_tokens=20, max_tokens=500)
    assert decide(exact, fleet(small), policy(), NOW_MS).reason is Reason.CONTEXT_LENGTH_EXCEEDED


def test_a_feature_that_no_allowed_backend_declares_is_said_as_such() -> None:
    asked = facts(features=frozenset({"tools"}))
    plain = backend("edge", models=(served(features=("structured_output",)),))
    decision = decide(asked, fleet(plain), policy(), NOW_MS)
    assert _why(decision, "edge") is Rejection.FEATURE_MISSING
    error = refusal(decision, asked)
    assert isinstance(error, InvalidRequest)
    assert error.code == "unsupported_feature"
    undeclared = backend("edge", models=(served(features=()),))
    assert _ids(decide(asked, fleet(undeclared), policy(), NOW_MS)) == ["edge"]


@pytest.mark.parametrize("feature", ["lora", "continuation"])
def test_a_feature_of_ours_needs_a_declaration(feature: str) -> None:
    """A server that does not know the field answers as if it had not been sent."""
    asked = facts(features=frozenset({feature}))
    cloud = backend("cloud", Zone.CLOUD, models=(served(features=()),))
    edge = backend("edge", models=(served(features=(feature, "tools")),))
    decision = decide(asked, fleet(cloud, edge), policy(Mode.PREFER_CLOUD), NOW_MS)
    assert _ids(decision) == ["edge"]
    assert _why(decision, "cloud") is Rejection.FEATURE_MISSING
    error = refusal(decide(asked, fleet(cloud), policy(), NOW_MS), asked)
    assert (error.code, feature in error.message) == ("unsupported_feature", True)


def test_a_cold_cloud_comes_last_but_is_woken_when_it_is_all_there_is() -> None:
    cold = backend("cloud", Zone.CLOUD, state=BackendState.SCALED_TO_ZERO, ttft_ms=None)
    both = decide(facts(), fleet(cold, EDGE), policy(Mode.PREFER_CLOUD), NOW_MS)
    assert _ids(both) == ["edge", "cloud"]
    assert both.reason is Reason.CLOUD_UNAVAILABLE
    assert _ids(decide(facts(), fleet(cold), policy(), NOW_MS)) == ["cloud"]
