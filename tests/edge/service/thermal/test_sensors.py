"""Sensor trees with every fault that a file can have."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from edge.devices.power import PowerSource
from edge.service.thermal import sensors
from edge.service.thermal.sensors import Sensor, SensorFault

IGNORE = ("nvme*", "iwlwifi*")


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
    opened = Path.open

    def failing(self: Path, *args: object, **kwargs: object) -> object:
        if self == temp:
            raise OSError(number, "driver")
        return opened(self, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", failing)
    assert _only(tmp_path).fault is SensorFault.UNREADABLE


def test_a_file_that_vanishes_is_a_fault_of_that_moment(tmp_path: Path) -> None:
    """TH-01"""
    folder = zone(tmp_path, "55000")
    assert _only(tmp_path).celsius == 55.0
    (folder / "temp").unlink()
    assert _only(tmp_path).celsius is None


def test_all_trees_and_kinds_are_read_but_the_ignored(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    zone(first, "50000")
    zone(first, "99000", kind="iwlwifi_1", number=1)
    zone(second, "91000", kind="simulated")
    chip = first / "class/hwmon/hwmon0"
    chip.mkdir(parents=True)
    (chip / "name").write_text("coretemp\n")
    (chip / "temp1_input").write_text("61000\n")
    (chip / "temp2_input").write_text("62000\n")
    disk = first / "class/hwmon/hwmon1"
    disk.mkdir()
    (disk / "name").write_text("nvme\n")
    (disk / "temp1_input").write_text("88000\n")
    read = sensors.read([first, second], IGNORE).sensors
    assert sorted((s.kind, s.celsius) for s in read) == [
        ("coretemp", 61.0),
        ("coretemp", 62.0),
        ("simulated", 91.0),
        ("x86_pkg_temp", 50.0),
    ]
