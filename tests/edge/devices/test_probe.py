"""What the probe reads from the machine, from machines of other kinds, and from trees with holes."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.devices.power import Power, PowerSource, read_power
from edge.devices.probe import probe


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def supply(root: Path, name: str, **files: str) -> None:
    folder = root / "class" / "power_supply" / name
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file).write_text(text + "\n")


def test_this_machine() -> None:
    facts = probe()
    assert 1 <= facts.cores_usable <= facts.cores_total
    assert 0 < facts.memory_available_bytes <= facts.memory_total_bytes
    assert facts.cpu_model
    assert facts.missing_libraries == ()


def test_an_arm_board(tmp_path: Path) -> None:
    cpuinfo = "processor\t: 0\nFeatures\t: fp asimd asimddp crc32\n\nprocessor\t: 1\nModel\t\t: Raspberry Pi 5\n"
    write(tmp_path, proc__cpuinfo=cpuinfo)
    facts = probe(tmp_path)
    assert facts.cpu_model == "Raspberry Pi 5"
    assert facts.cpu_features == {"asimd", "asimddp"}


def test_a_tree_without_anything(tmp_path: Path) -> None:
    facts = probe(tmp_path)
    assert facts.cpu_features == frozenset()
    assert facts.cores_usable >= 1
    assert facts.memory_available_bytes > 0
    assert facts.power == Power(PowerSource.MAINS)


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", None), ("100000 100000", 1), ("50000 100000", 1), ("x y", None), ("", None)]
)
def test_a_containers_quota_limits_the_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    write(tmp_path, sys__fs__cgroup__cpu_max="")
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(quota)
    assert probe(tmp_path).cores_usable == (cores or probe().cores_usable)


def test_a_containers_limit_is_the_memory_there_is(tmp_path: Path) -> None:
    cgroup = tmp_path / "sys" / "fs" / "cgroup"
    cgroup.mkdir(parents=True)
    (cgroup / "memory.max").write_text("1000000\n")
    (cgroup / "memory.current").write_text("700000\n")
    (cgroup / "memory.stat").write_text("anon 500000\ninactive_file 150000\n")
    facts = probe(tmp_path)
    assert (facts.memory_total_bytes, facts.memory_available_bytes) == (1000000, 450000)
    (cgroup / "memory.current").write_text("2000000\n")
    assert probe(tmp_path).memory_available_bytes == 0
    (cgroup / "memory.max").write_text("max\n")
    assert probe(tmp_path).memory_available_bytes > 1000000


def test_th_05_no_battery_is_mains(tmp_path: Path) -> None:
    assert read_power(tmp_path) == Power(PowerSource.MAINS)
    supply(tmp_path, "AC", type="Mains", online="1")
    assert read_power(tmp_path) == Power(PowerSource.MAINS)


@pytest.mark.parametrize("kind", ["Mains", "USB", "USB_PD", "USB_C", "USB_DCP", "Wireless"])
def test_th_05_a_charger_is_one_whatever_kind_its_driver_names(tmp_path: Path, kind: str) -> None:
    """A battery that is full and rests tells nothing: the charger alone does."""
    supply(tmp_path, "BAT0", type="Battery", status="Full", capacity="100")
    supply(tmp_path, "charger", type=kind, online="1")
    assert read_power(tmp_path) == Power(PowerSource.MAINS, 100.0)


def test_th_05_a_mouse_is_no_battery_of_the_device(tmp_path: Path) -> None:
    supply(tmp_path, "hid-mouse", type="Battery", scope="Device", status="Discharging", capacity="20")
    assert read_power(tmp_path) == Power(PowerSource.MAINS)


@pytest.mark.parametrize(
    ("first", "second", "percent"),
    [
        ({"capacity": "0"}, {"capacity": "80"}, 40),
        ({"capacity": "0", "energy_full": "10000000"}, {"capacity": "80", "energy_full": "30000000"}, 60),
        ({"capacity": "0", "charge_full": "1"}, {"capacity": "80", "charge_full": "3"}, 60),
        ({"capacity": "0", "energy_full": "1"}, {"capacity": "80", "charge_full": "3"}, 40),  # not to be compared
        ({"capacity": "20", "energy_full": "0"}, {"capacity": "80", "energy_full": "inf"}, 50),
        ({"capacity": "N/A"}, {"capacity": "80"}, 80),
        ({"capacity": "3", "present": "0"}, {"capacity": "80"}, 80),
        ({}, {}, None),
    ],
)
def test_th_05_of_several_batteries_the_charge_of_all_counts(
    tmp_path: Path, first: dict[str, str], second: dict[str, str], percent: float | None
) -> None:
    """Many drain one after the other: the first is empty long before the device is."""
    supply(tmp_path, "BAT0", type="Battery", status="Unknown", **first)
    supply(tmp_path, "BAT1", type="Battery", status="Discharging", **second)
    assert read_power(tmp_path) == Power(PowerSource.BATTERY, percent)


@pytest.mark.parametrize(
    ("battery", "mains", "expected"),
    [
        ({"status": "Discharging", "capacity": "41"}, "0", Power(PowerSource.BATTERY, 41)),
        ({"status": "Charging", "capacity": "41"}, None, Power(PowerSource.MAINS, 41)),
        ({"status": "Full", "capacity": "100"}, "1", Power(PowerSource.MAINS, 100)),
        ({"status": "Unknown", "capacity": "100"}, None, Power(PowerSource.UNKNOWN, 100)),
        ({"capacity": "100"}, None, Power(PowerSource.UNKNOWN, 100)),
        ({"status": "Unknown", "capacity": "50"}, "0", Power(PowerSource.BATTERY, 50)),
        ({"status": "Discharging", "capacity": "104"}, "0", Power(PowerSource.BATTERY, None)),
        ({"status": "Discharging", "capacity": "-1"}, "0", Power(PowerSource.BATTERY, None)),
        ({"status": "Discharging", "capacity": "N/A"}, "0", Power(PowerSource.BATTERY, None)),
        ({"status": "Discharging", "capacity": "nan"}, "0", Power(PowerSource.BATTERY, None)),
        ({"status": "Discharging"}, "0", Power(PowerSource.BATTERY, None)),
        ({"status": "Discharging", "capacity": "4"}, "1", Power(PowerSource.BATTERY, 4)),  # a charger that is too weak
        ({"status": "Not charging", "capacity": "80"}, "1", Power(PowerSource.MAINS, 80)),
        ({"status": "Unknown", "capacity": "0", "present": "0"}, None, Power(PowerSource.MAINS)),  # an empty bay
    ],
)
def test_th_05_what_cannot_be_told_is_never_mains_and_never_zero(
    tmp_path: Path, battery: dict[str, str], mains: str | None, expected: Power
) -> None:
    supply(tmp_path, "BAT0", type="Battery", **battery)
    if mains is not None:
        supply(tmp_path, "AC", type="Mains", online=mains)
    assert read_power(tmp_path) == expected
