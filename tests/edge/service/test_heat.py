"""What heat takes away, seen through the agent's HTTP surface: caps with their reason, settings of levels."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.settings import EdgeSettings
from shared.errors import SettingsError
from shared.fleet import ThermalLevel
from shared.http.names import OUTPUT_CAP_HEADER
from shared.settings import load
from tests.edge.service.fakes import EngineServer, FakeEngine
from tests.edge.service.harness import running_agent, until
from tests.edge.service.thermal.test_sensors import zone

HOT_MC = "87000"


def _thermal(tree: Path, **fields: object) -> dict[str, object]:
    return {"roots": [str(tree)], "dwell_s": 0.2, "interval_s": 0.05, **fields}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_capped_answer_says_why(engine: FakeEngine, server: EngineServer, tmp_path: Path, stream: bool) -> None:
    zone(tmp_path, HOT_MC)
    thermal = _thermal(tmp_path, levels={"hot": {"output_cap_tokens": 64}})
    async with running_agent(engine, thermal=thermal) as running:
        await until(lambda: running.agent.thermal.level is ThermalLevel.HOT)
        async with running.chat(max_tokens=500, stream=stream) as response:
            assert response.headers[OUTPUT_CAP_HEADER] == "64; reason=thermal"
            await response.read()
        assert server.exchanges[-1].body["max_tokens"] == 64
        async with running.chat(stream=stream) as response:
            assert response.headers[OUTPUT_CAP_HEADER] == "64; reason=thermal"
            await response.read()
        async with running.chat(max_tokens=10, stream=stream) as response:
            assert OUTPUT_CAP_HEADER not in response.headers  # the caller's own limit is lower: nothing was taken away
            await response.read()
        assert server.exchanges[-1].body["max_tokens"] == 10
        zone(tmp_path, "50000")
        await until(lambda: running.agent.thermal.level is ThermalLevel.NOMINAL)
        async with running.chat(max_tokens=500, stream=stream) as response:
            assert OUTPUT_CAP_HEADER not in response.headers
            await response.read()


async def test_levels_do_what_the_settings_say(engine: FakeEngine, tmp_path: Path) -> None:
    zone(tmp_path, HOT_MC)
    levels = {"hot": {"admits": False}, "critical": {"admits": True, "output_cap_tokens": None}}
    async with running_agent(engine, thermal=_thermal(tmp_path, levels=levels)) as running:
        await until(lambda: running.agent.thermal.level is ThermalLevel.HOT)
        async with running.chat() as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "thermal_critical")
        zone(tmp_path, "99000")
        await until(lambda: running.agent.thermal.level is ThermalLevel.CRITICAL)
        async with running.chat(max_tokens=500) as response:
            assert response.status == 200
            assert OUTPUT_CAP_HEADER not in response.headers


async def test_a_warm_device_computes_on_fewer_threads_until_it_is_cool(engine: FakeEngine, tmp_path: Path) -> None:
    zone(tmp_path, "78000")
    async with running_agent(engine, thermal=_thermal(tmp_path)) as running:
        await until(lambda: engine.threads_ratio == 0.5)
        assert running.agent.status()["threads_ratio"] == 0.5
        zone(tmp_path, "50000")
        await until(lambda: engine.threads_ratio == 1.0)


async def test_sensors_and_forecast_are_shown(engine: FakeEngine, tmp_path: Path) -> None:
    zone(tmp_path, "50000")
    zone(tmp_path, "-273150", kind="gpu", number=1)
    async with running_agent(engine, thermal=_thermal(tmp_path)) as running:
        await until(lambda: running.agent.thermal.level is ThermalLevel.NOMINAL)
        status = running.agent.status()
        assert status["sensors"] == {"x86_pkg_temp": "ok", "gpu": "absurd"}
        assert status["seconds_to_throttle"] is None
        metrics = await running.metrics()
        assert 'isthmus_edge_sensors{state="absurd"} 1.0' in metrics
        assert "isthmus_edge_seconds_to_throttle NaN" in metrics
        assert "isthmus_edge_energy_joules_per_token NaN" in metrics


@pytest.mark.parametrize(
    ("thermal", "param"),
    [
        ({"levels": {"hot": {"slots": 0}}}, "edge.thermal.levels.hot.slots"),
        ({"levels": {"warm": {"threads_ratio": 0}}}, "edge.thermal.levels.warm.threads_ratio"),
        ({"levels": {"tepid": {}}}, "edge.thermal.levels.tepid"),
        ({"sensors": [{"match": "a", "degrees_per_unit": -1}]}, "edge.thermal.sensors.0.degrees_per_unit"),
        ({"sensors": [{"match": "a", "lowest_c": 50, "highest_c": 40}]}, "edge.thermal.sensors.0"),
        ({"battery_empty_percent": 50}, "edge.thermal"),
        ({"libraries": ["lm_sensors"]}, "edge.thermal.libraries.0"),
        ({"warm_c": 90}, "edge.thermal"),
        ({"warm_c": float("nan")}, "edge.thermal.warm_c"),
    ],
)
def test_settings_that_make_no_sense_are_refused(thermal: dict[str, object], param: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(EdgeSettings, "edge", thermal=thermal)
    assert refused.value.param == param


def test_one_field_of_a_level_leaves_the_others_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS__EDGE__THERMAL__LEVELS__HOT__SLOTS", "2")
    hot = load(EdgeSettings, "edge").thermal.levels.hot
    assert (hot.slots, hot.output_cap_tokens, hot.admits) == (2, 256, True)
