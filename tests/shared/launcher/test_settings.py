"""How `up` is told what to start, and how it connects the tiers without overruling their settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.errors import SettingsError
from shared.launcher.settings import Address, SimulatedHeat, UpSettings, wiring_of
from shared.settings import load
from shared.testing.scenarios import Scenario


@pytest.mark.parametrize(
    ("text", "tiers"),
    [("edge", ("edge",)), ("edge,cloud", ("edge", "cloud")), (" cloud , edge,cloud ", ("cloud", "edge"))],
)
def test_tiers_by_command_line_and_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, tiers: tuple[str, ...]
) -> None:
    assert load(UpSettings, "up", tiers=text).tiers == tiers
    monkeypatch.setenv("ISTHMUS__UP__TIERS", text)
    assert load(UpSettings, "up").tiers == tiers


def test_tiers_in_the_file_may_be_a_list(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("up: {tiers: [cloud]}")
    assert load(UpSettings, "up", path).tiers == ("cloud",)


@pytest.mark.parametrize("text", ["fog", "", ",", "edge;cloud", "router"])
def test_an_unknown_tier_is_refused(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(UpSettings, "up", tiers=text)
    assert caught.value.param is not None
    assert caught.value.param.startswith("up.tiers")


def test_the_run_folder_is_in_the_home_unless_said_otherwise(isolated_environment: Path, tmp_path: Path) -> None:
    assert load(UpSettings, "up").folder == isolated_environment / "run"
    assert UpSettings(run_dir=tmp_path / "r").folder == tmp_path / "r"


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (Address("127.0.0.1", 1), "http://127.0.0.1:1"),
        (Address("0.0.0.0", 1), "http://127.0.0.1:1"),
        (Address("::", 1), "http://[::1]:1"),
        (Address("::1", 1), "http://[::1]:1"),
        (Address("host.local", 1), "http://host.local:1"),
        (Address("0.0.0.0", 1, "https"), "https://127.0.0.1:1"),
        (Address("::1", 1, "https"), "https://[::1]:1"),
    ],
)
def test_a_client_on_this_machine_gets_an_address_it_can_connect_to(address: Address, url: str) -> None:
    assert address.url == url


def test_what_the_settings_say_stays(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "edge: {port: 1001, model: other, router: {url: 'http://gateway:1'}, thermal: {roots: ['/a']}}\n"
        "router: {port: 1002, keys: [{name: a}], clouds: [{id: hosted, url: 'http://hosted'}]}\n"
    )
    wiring = wiring_of(("edge", "cloud"), path, sensors=Path("/s"))
    assert wiring.variables["router"] == {}
    assert set(wiring.variables["edge"]) == {"ISTHMUS__EDGE__THERMAL__ROOTS"}
    assert json.loads(wiring.variables["edge"]["ISTHMUS__EDGE__THERMAL__ROOTS"]) == ["/a", "/s"]
    assert wiring.addresses["edge"].port == 1001
    assert wiring.model == "other"
    assert wiring.asks_for_key


def test_what_the_settings_say_of_certificates_stays(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "edge: {router: {tls: {ca_file: /own.pem}}}\nrouter: {tls: {cert_file: /a.pem, key_file: /a.key}, workers: 2}\n"
    )
    wiring = wiring_of(("edge",), path, sensors=Path("/s"))
    told = {name for name in wiring.variables["edge"] if "ROUTER" in name}
    assert told == {"ISTHMUS__EDGE__ROUTER__URL"} and wiring.addresses["router"].url == "https://127.0.0.1:8080"


def test_without_cloud_the_router_is_told_of_none() -> None:
    wiring = wiring_of(("edge",), None, sensors=Path("/s"))
    assert wiring.variables["router"] == {}
    assert set(wiring.addresses) == {"edge", "router"}


@pytest.mark.parametrize("text", ["edge: {port: 0}", "router: {port: 99999}", "edge: {port: x}"])
def test_a_port_that_cannot_be_known_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match="port"):
        wiring_of(("edge",), path, sensors=Path("/s"))


def test_a_simulated_device_has_no_part_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("edge: {thermal: {roots: ['/sys', '/more']}}\n")
    heat = SimulatedHeat(Scenario.RAMP, Path("/h"), 4.0)
    variables = wiring_of(("edge",), path, sensors=Path("/s"), simulated=heat).variables["edge"]
    assert json.loads(variables["ISTHMUS__EDGE__THERMAL__ROOTS"]) == ["/h", "/s"]
    assert variables["ISTHMUS__EDGE__THERMAL__TIME_SCALE"] == "4.0"


@pytest.mark.parametrize("heat", [{"scenario": "volcano"}, {"compression": 0.5}, {"compression": float("inf")}])
def test_heat_that_cannot_be_is_refused(heat: dict[str, object]) -> None:
    with pytest.raises(SettingsError) as caught:
        load(UpSettings, "up", heat=heat)
    assert caught.value.param is not None
    assert caught.value.param.startswith("up.heat")
