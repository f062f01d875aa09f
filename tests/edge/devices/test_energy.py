"""RAPL counters: which count, what a fall-back to zero means, and what is no energy at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.devices.energy import EnergyCounter, joules_between
from edge.devices.powercap import read_energy
from edge.service.thermal.energy import EnergyMeter


def zone(root: Path, name: str, energy_uj: str, range_uj: str = "262143328850") -> None:
    """A powercap zone below `root`."""
    folder = root / "class/powercap" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "energy_uj").write_text(energy_uj + "\n")
    (folder / "max_energy_range_uj").write_text(range_uj + "\n")


def test_whole_packages_count_once(tmp_path: Path) -> None:
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0", "intel-rapl-mmio:0", "dtpm", "intel-rapl"):
        zone(tmp_path, name, "1000")
    assert [counter.name.rsplit(":", 1)[1] for counter in read_energy(tmp_path)] == ["0", "1"]


def test_the_second_way_counts_where_it_is_the_only_one(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl-mmio:0", "1000")
    assert len(read_energy(tmp_path)) == 1


@pytest.mark.parametrize("text", ["", "N/A", "-5", "9" * 30, "262143328851"])
def test_what_is_no_counter_is_absent(tmp_path: Path, text: str) -> None:
    zone(tmp_path, "intel-rapl:0", text)
    assert read_energy(tmp_path) == ()


def test_no_tree_is_no_energy(tmp_path: Path) -> None:
    assert read_energy(tmp_path) == ()


def _at(energy_uj: int, *, name: str = "p", range_uj: int = 1_000_000_000) -> tuple[EnergyCounter, ...]:
    return (EnergyCounter(name, energy_uj, range_uj),)


def test_energy_between_two_readings_also_over_the_end_of_the_range() -> None:
    assert joules_between(_at(1_000_000), _at(31_000_000), 2.0) == 30.0
    assert joules_between(_at(990_000_000), _at(5_000_000), 2.0) == 15.0


def test_what_cannot_be_is_not_known() -> None:
    assert joules_between((), _at(1), 1.0) is None
    assert joules_between(_at(1), _at(2, name="q"), 1.0) is None
    assert joules_between(_at(1), _at(2), 0.0) is None
    big = 10**12
    assert joules_between(_at(5_000, range_uj=big), _at(0, range_uj=big), 1.0) is None  # reset, not gone round


def test_energy_of_a_token_is_that_of_the_time_in_which_the_engine_worked() -> None:
    meter = EnergyMeter().after(_at(0), 0, busy_ratio=0.0)
    meter = meter.after(_at(5_000_000), 1000, busy_ratio=0.0)
    assert (meter.watts, meter.joules_per_token) == (5.0, None)
    meter = meter.after(_at(25_000_000), 2000, busy_ratio=1.0).with_tokens(100)
    assert meter.watts == 20.0
    assert meter.joules_per_token == pytest.approx(0.2)


def test_old_figures_fade() -> None:
    meter, energy_uj = EnergyMeter().after(_at(0, range_uj=10**12), 0, busy_ratio=1.0), 0
    for second in range(1, 200):
        energy_uj += 20_000_000 if second < 100 else 10_000_000
        meter = meter.after(_at(energy_uj, range_uj=10**12), second * 1000, busy_ratio=1.0).with_tokens(100)
    assert meter.joules_per_token == pytest.approx(0.1, rel=0.1)


def test_without_counters_nothing_is_told() -> None:
    meter = EnergyMeter().after((), 1000, busy_ratio=1.0).with_tokens(1000)
    assert (meter.watts, meter.joules_per_token) == (None, None)
