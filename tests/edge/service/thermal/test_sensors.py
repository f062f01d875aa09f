"""Sensor trees with every fault that a file can have."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from edge.devices.host_sensors import HostSensor
from edge.devices.power import PowerSource
from edge.heat import sensor_rules
from edge.service.thermal import sensors
from edge.service.thermal.readings import SensorRule
from edge.service.thermal.sensors import Sensor, SensorFault
from edge.settings import SensorSettings, ThermalSettings

IGNORE = (SensorRule("nvme*", use=False), SensorRule("iwlwifi*", use=False))


def zone(root: Path, temp: str | None, *, kind: str = "x86_pkg_temp", number: int = 0) -> Path:
    """A thermal zone; `temp` None leaves the file out."""
    folder = root / f"class/thermal/thermal_zone{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "type").write_text(kind + "\n")
    if temp is not None:
        (folder / "temp").write_text(temp)
    return folder


def _only(root: Path) -> Sensor:
    (sensor,) = sensors.read([root], IGNORE).sensors
    return sensor


def test_no_tree_at_all_is_no_sensors(tmp_path: Path) -> None:
    """TH-01"""
    sample = sensors.read([tmp_path / "absent", tmp_path], IGNORE)
    assert sample.sensors == ()
    assert sample.power.source is PowerSource.MAINS


@pytest.mark.parametrize(
    ("temp", "fault"),
    [
        ("-273150\n", SensorFault.IMPLAUSIBLE),
        ("0\n", SensorFault.IMPLAUSIBLE),
        ("", SensorFault.UNREADABLE),
        ("N/A\n", SensorFault.NOT_A_NUMBER),
        ("nan\n", SensorFault.NOT_A_NUMBER),
        ("inf\n", SensorFault.NOT_A_NUMBER),
        ("-650788984", SensorFault.IMPLAUSIBLE),
        ("9" * 300, SensorFault.IMPLAUSIBLE),
        ("\xff\xfe", SensorFault.NOT_A_NUMBER),
        (None, SensorFault.UNREADABLE),
    ],
)
def test_a_bad_reading_is_a_fault_and_no_value(tmp_path: Path, temp: str | None, fault: SensorFault) -> None:
    """TH-01"""
    zone(tmp_path, temp)
    assert _only(tmp_path) == Sensor("x86_pkg_temp", None, fault)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENODEV, errno.EIO])
def test_a_driver_that_fails_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """TH-01: such an error comes from read or open, so the file is there and still gives nothing."""
    temp = zone(tmp_path, "55000") / "temp"
    opened = os.open

    def failing(path: str | Path, flags: int) -> int:
        if Path(path) == temp:
            raise OSError(number, "driver")
        return opened(path, flags)

    monkeypatch.setattr(os, "open", failing)
    assert _only(tmp_path).fault is SensorFault.UNREADABLE


def test_a_file_that_vanishes_is_a_fault_of_that_moment(tmp_path: Path) -> None:
    """TH-01"""
    folder = zone(tmp_path, "55000")
    assert _only(tmp_path).celsius == 55.0
    (folder / "temp").unlink()
    assert _only(tmp_path).celsius is None


def chip(root: Path, kind: str, number: int = 0, **files: str) -> Path:
    """A hardware monitor with `files`."""
    folder = root / f"class/hwmon/hwmon{number}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"name": kind, **files}.items():
        (folder / name).write_text(text + "\n")
    return folder


def test_all_trees_and_kinds_are_read_but_the_ignored(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    zone(first, "50000")
    zone(first, "99000", kind="iwlwifi_1", number=1)
    zone(second, "91000", kind="simulated")
    chip(first, "coretemp", temp1_input="61000", temp1_label="Package id 0", temp2_input="62000")
    chip(first, "nvme", 1, temp1_input="88000")
    read = sensors.read([first, second], IGNORE).sensors
    assert sorted((s.name, s.celsius) for s in read) == [
        ("coretemp/Package id 0", 61.0),
        ("coretemp/temp2", 62.0),
        ("simulated", 91.0),
        ("x86_pkg_temp", 50.0),
    ]


@pytest.mark.parametrize(
    ("kind", "celsius"),
    [("nct6798", "127500"), ("it8728", "-128000"), ("w83627dhg", "115000"), ("f71889fg", "127000"), ("sfp_1", "91000")],
)
def test_th_01_what_is_wired_to_nothing_or_to_a_port_does_not_count(tmp_path: Path, kind: str, celsius: str) -> None:
    """TH-01: an input of a main board that shows 127 degrees for ever would keep a cool device from all work."""
    zone(tmp_path, "55000")
    chip(tmp_path, kind, temp1_input=celsius, temp2_input="40000")
    assert sensors.read([tmp_path], sensor_rules(ThermalSettings())).sensors == (Sensor("x86_pkg_temp", 55.0),)


def test_th_01_what_is_ignored_counts_where_the_settings_say_so(tmp_path: Path) -> None:
    """TH-01: a board may have no other sensor of its processor."""
    chip(tmp_path, "it8728", temp1_input="71000", temp2_input="127000")
    rules = sensor_rules(ThermalSettings(sensors=(SensorSettings(match="it8728/temp1"),)))
    assert sensors.read([tmp_path], rules).sensors == (Sensor("it8728/temp1", 71.0),)


def test_names_are_unique_and_outlive_the_kernels_numbers(tmp_path: Path) -> None:
    chip(tmp_path, "coretemp", 3, temp1_input="61000")
    chip(tmp_path, "coretemp", 7, temp1_input="62000")
    assert [s.name for s in sensors.read([tmp_path], ()).sensors] == ["coretemp/temp1", "coretemp/temp1#2"]


def test_a_sensor_that_its_driver_calls_faulty_has_no_value(tmp_path: Path) -> None:
    """TH-01"""
    chip(tmp_path, "nct6775", temp1_input="127500", temp1_fault="1")
    assert _only(tmp_path) == Sensor("nct6775/temp1", None, SensorFault.DECLARED)


def test_the_first_rule_that_fits_decides(tmp_path: Path) -> None:
    """By full name or by type; a driver that counts in whole degrees is read once somebody says so."""
    zone(tmp_path, "55", kind="soc")
    chip(tmp_path, "k10temp", temp1_input="82000", temp1_label="Tctl", temp2_input="50000", temp2_label="Tdie")
    rules = (
        SensorRule("soc", degrees_per_unit=1.0),
        SensorRule("k10temp/Tctl", offset_c=-27.0),
        SensorRule("k10temp", use=False),
    )
    assert {s.name: s.celsius for s in sensors.read([tmp_path], rules).sensors} == {"soc": 55.0, "k10temp/Tctl": 55.0}


def test_what_libraries_know_is_judged_like_the_rest(tmp_path: Path) -> None:
    asked = []

    def host(tree_has_sensors: bool) -> list[HostSensor]:
        asked.append(tree_has_sensors)
        return [HostSensor("nvidia", "nvidia/0", 71.0), HostSensor("cpu", "cpu/0", -273.15), HostSensor("x", "x", 1e9)]

    read = sensors.read([tmp_path], (SensorRule("x", use=False),), host).sensors
    assert read == (Sensor("nvidia/0", 71.0), Sensor("cpu/0", None, SensorFault.IMPLAUSIBLE))
    zone(tmp_path, "50000")
    sensors.read([tmp_path], (), host)
    assert asked == [False, True]
