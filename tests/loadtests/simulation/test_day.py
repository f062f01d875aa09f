"""A simulated day: the router's own decisions, physics that adds up, and personal data that never leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from loadtests.cli import app
from loadtests.simulation.cloud import Cloud, CloudModel
from loadtests.simulation.day import Day, Plan, waves
from loadtests.simulation.deciding import CLOUD, EDGE, NOBODY, Decider, Situations
from loadtests.simulation.devices import CLASSES, CRITICAL, NOMINAL, new_fleet, step
from loadtests.simulation.policies import named, varied
from loadtests.simulation.requests import asks_of_step
from shared.errors import SettingsError

PLAN = Plan(devices=60, hours=2.0, per_day=400.0)


def situation(**changes: object) -> Situations:
    """One request of an idle, cool device with a fast cloud."""
    values: dict[str, object] = {
        "prefill_tokens_per_s": 400.0,
        "decode_tokens_per_s": 60.0,
        "level": NOMINAL,
        "slots": 2,
        "open": 0,
        "prompt_tokens": 60,
        "output_tokens": 100,
        "privacy": 0,
        "cloud_ttft_ms": 200.0,
        "cloud_tpot_ms": 22.0,
        "incumbent": NOBODY,
        "held": 0,
    } | changes
    return Situations(**{name: np.array([value]) for name, value in values.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "changes", "first", "second"),
    [
        ("default", {}, EDGE, CLOUD),
        ("prefer_cloud", {}, CLOUD, EDGE),
        ("only_edge", {}, EDGE, NOBODY),
        ("default", {"prompt_tokens": 3_500, "prefill_tokens_per_s": 60.0}, CLOUD, EDGE),
        ("default", {"level": CRITICAL}, CLOUD, NOBODY),
        ("default", {"privacy": 1}, EDGE, NOBODY),
        ("default", {"privacy": 2, "level": CRITICAL}, NOBODY, NOBODY),
        ("default", {"privacy": 1, "open": 10}, NOBODY, NOBODY),
        ("prefer_cloud", {"privacy": 1}, EDGE, NOBODY),
        ("default", {"incumbent": CLOUD, "held": 1}, CLOUD, EDGE),
        ("default", {"incumbent": CLOUD, "held": 0}, EDGE, CLOUD),
    ],
)
def test_choices_are_those_of_the_routers_policy(
    policy: str, changes: dict[str, object], first: int, second: int
) -> None:
    chosen = Decider(named(policy)).choose(situation(**changes))
    assert (chosen.first[0], chosen.second[0]) == (first, second)


def test_a_situation_is_decided_once_and_remembered() -> None:
    decider = Decider(named("default"))
    for _ in range(3):
        decider.choose(situation())
    decider.choose(situation(prompt_tokens=61))
    assert decider.decided == 1, "61 tokens are the same situation as 60"
    decider.choose(situation(prompt_tokens=200))
    assert decider.decided == 2


def test_a_day_is_the_same_for_the_same_seed_and_differs_for_another() -> None:
    first, again = (Day(PLAN, named("default")).run() for _ in range(2))
    assert first == again
    assert Day(replace(PLAN, seed=2), named("default")).run()["requests"] != first["requests"]


def test_no_policy_sends_personal_data_to_the_cloud_and_every_request_is_accounted_for() -> None:
    for name in ("default", "fastest", "prefer_cloud", "only_edge"):
        day = Day(PLAN, named(name)).run()
        privacy = day["privacy"]
        assert privacy["sent_to_cloud"] == 0
        assert privacy["kept_on_edge"] > 0
        assert sum(day["reasons"].values()) == day["requests"] > 200
        assert day["cloud_tokens"] == 0 or name != "only_edge"


def test_preferences_show_in_the_share_of_the_tiers() -> None:
    share = {name: Day(PLAN, named(name)).run()["edge_share"] for name in ("default", "prefer_cloud", "only_edge")}
    assert share["prefer_cloud"] < share["default"] < share["only_edge"] == 1.0


def test_a_device_at_work_heats_up_throttles_once_a_level_and_cools_again() -> None:
    dice = np.random.default_rng(1)
    fleet = new_fleet(1, tuple(each for each in CLASSES if each.name == "laptop"), dice)
    fleet.rise_c[:] = 70.0
    fleet.home_air_c[:] = 25.0
    busy, idle = fleet.slots * 60.0, np.zeros(1)
    for minute in range(60):
        joules = step(fleet, busy, 12 * 3600 + minute * 60, 60.0)
    assert fleet.level[0] >= 2
    assert fleet.throttle_events in (1, 2)
    assert joules[0] == pytest.approx((fleet.busy_w[0] - fleet.idle_w[0]) * 60.0)
    for minute in range(60):
        step(fleet, idle, 13 * 3600 + minute * 60, 60.0)
    assert fleet.level[0] == NOMINAL or fleet.charge_wh[0] < 0.15 * fleet.battery_wh[0]


def test_a_battery_runs_down_by_day_and_is_full_again_after_a_night_on_mains() -> None:
    fleet = new_fleet(50, tuple(each for each in CLASSES if each.name == "phone"), np.random.default_rng(1))
    fleet.charge_wh[:] = fleet.battery_wh
    for minute in range(8 * 60):
        step(fleet, fleet.slots * 60.0, 9 * 3600 + minute * 60, 60.0)
    assert (fleet.level == CRITICAL).all(), "eight hours at full load empty every phone"
    for minute in range(16 * 60):
        step(fleet, np.zeros(50), 17 * 3600 + minute * 60, 60.0)
    assert (fleet.level == NOMINAL).all()


def test_the_cloud_scales_late_and_its_backlog_is_waited_for() -> None:
    """64 requests of a minute each arrive in every minute, and one replica has 32 streams."""
    cloud, minute_s = Cloud(CloudModel(start_s=120.0, stop_after_s=300.0)), np.full(64, 60.0)
    for minute in range(2):
        cloud.step(minute_s, minute * 60.0, 60.0)
    assert cloud.replicas == 1
    assert cloud.wait_ms > 30_000
    for minute in range(2, 30):
        cloud.step(minute_s, minute * 60.0, 60.0)
    assert cloud.replicas >= 3
    assert cloud.wait_ms == 0
    for minute in range(30, 45):
        cloud.step(np.empty(0), minute * 60.0, 60.0)
    assert cloud.replicas == 1
    assert cloud.peak_replicas >= 3


def test_a_long_answer_keeps_one_stream_for_as_long_as_it_takes() -> None:
    cloud = Cloud(CloudModel(streams_per_replica=10, full_slowdown=1.0, decode_tokens_per_s=100.0))
    alone_ms = cloud.tpot_ms
    cloud.step(np.array([5.0]), 0.0, 1.0)
    for second in range(1, 5):
        assert cloud.busy_ratio == pytest.approx(0.1)
        assert cloud.tpot_ms == pytest.approx(1.1 * alone_ms)
        cloud.step(np.empty(0), float(second), 1.0)
    cloud.step(np.empty(0), 5.0, 1.0)
    assert cloud.busy_ratio == 0


def test_no_device_comes_twice_in_a_wave_and_nothing_is_left_out() -> None:
    device = np.array([3, 1, 3, 3, 2, 1])
    found = waves(device)
    assert [rows.tolist() for rows in found] == [[0, 1, 4], [2, 5], [3]]
    assert waves(np.array([], dtype=np.int64)) == []


def test_requests_follow_the_day_and_keep_to_their_step() -> None:
    dice = np.random.default_rng(1)
    night, evening = (asks_of_step(hour * 3600, 3600, devices=1_000, per_day=20, dice=dice) for hour in (3, 20))
    assert evening.size > 5 * night.size
    assert (np.diff(evening.at_s) >= 0).all()
    assert evening.at_s.min() >= 20 * 3600
    assert evening.at_s.max() < 21 * 3600


def test_variants_are_policies_of_one_setting() -> None:
    policies = varied("slo.ttft_ms=500,4000")
    assert [policy.slo.ttft_ms for policy in policies.values()] == [500, 4_000]
    assert list(policies) == ["slo.ttft_ms=500", "slo.ttft_ms=4000"]


@pytest.mark.parametrize("text", ["", "slo.ttft_ms", "nothing=1", "slo.ttft_ms=-1", "mode=slow", "dwell_ms=1,x"])
def test_what_is_no_variant_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        varied(text)


def test_the_command_prints_figures_of_every_policy() -> None:
    options = ["--devices", "20", "--hours", "1", "--processes", "1", "--vary", "hysteresis_ratio=0,0.4", "--json"]
    result = CliRunner().invoke(app, ["simulate", *options], standalone_mode=False)
    assert result.exception is None, result.exception
    printed = orjson.loads(result.stdout)
    assert list(printed["policies"]) == ["hysteresis_ratio=0", "hysteresis_ratio=0.4"]
    assert printed["plan"]["devices"] == 20
    for day in printed["policies"].values():
        assert {"cloud_money", "edge_kwh", "ttft_ms", "edge_share", "privacy", "throttle_events"} <= day.keys()


@pytest.mark.parametrize(
    "options",
    [
        ["--hours", "0.05", "--step-s", "600"],
        ["--day", "--hours", "3"],
    ],
)
def test_what_makes_no_day_is_refused(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["simulate", "--devices", "5", *options], standalone_mode=False)
    assert isinstance(result.exception, SettingsError)


@pytest.mark.slow
def test_a_cluster_finds_the_same_as_this_process() -> None:
    """Real Ray, started for this call on this machine."""
    options = ["simulate", "--devices", "20", "--hours", "1", "--vary", "hysteresis_ratio=0,0.4", "--json"]
    alone, spread = (
        CliRunner().invoke(app, [*options, *more], standalone_mode=False)
        for more in (("--processes", "1"), ("--ray", "local"))
    )
    assert spread.exception is None, spread.exception
    assert orjson.loads(spread.stdout)["policies"] == orjson.loads(alone.stdout)["policies"]


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_said_so() -> None:
    result = CliRunner().invoke(app, ["simulate", "--devices", "5", "--ray", "127.0.0.1:1"], standalone_mode=False)
    assert isinstance(result.exception, SettingsError)
