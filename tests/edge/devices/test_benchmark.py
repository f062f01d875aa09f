"""The micro-benchmark: it measures, it is kept for this machine alone, and what is kept is checked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edge.devices import benchmark, calibrated
from edge.devices.benchmark import Benchmark, machine_identity
from edge.devices.caches import Cache, read_caches
from edge.devices.calibrated import Calibrated
from edge.devices.probe import DeviceFacts, probe
from edge.devices.profile import measured
from edge.devices.unit import Efficiency
from shared.errors import SettingsError


@pytest.fixture(scope="module")
def device() -> DeviceFacts:
    return probe()


def made_up(device: DeviceFacts) -> Benchmark:
    rates = {"matmul": {256: 2e9, 512: 3e9}, "copy": {1024: 9e9, 4096: 5e9}, "triad": {1024: 8e9, 4096: 6e9}}
    faster = {name: {size: 2 * value for size, value in values.items()} for name, values in rates.items()}
    return Benchmark.model_validate({"identity": machine_identity(device), "by_threads": {1: rates, 4: faster}})


def test_it_measures_sizes_and_threads_and_is_found_again(device: DeviceFacts, tmp_path: Path) -> None:
    found = benchmark.measure(device, repetitions=1)
    assert set(found.by_threads) == {1, device.cores_usable}
    for rates in found.by_threads.values():
        assert len(rates.matmul) == len(rates.copy_) == len(rates.triad) == 3
        assert rates.flops_per_s > 1e6
        assert rates.bytes_per_s > 1e6
    assert benchmark.kept(tmp_path, device) is None
    benchmark.keep(tmp_path / "devices", found)
    assert benchmark.kept(tmp_path / "devices", device) == found
    assert [path.name for path in (tmp_path / "devices").iterdir()] == [f"benchmark-{found.identity}.json"]


def test_the_peaks_are_the_best_product_and_the_largest_arrays(device: DeviceFacts) -> None:
    found = made_up(device)
    assert (found.at(1).flops_per_s, found.at(1).bytes_per_s) == (3e9, 6e9)
    assert found.at(3) == found.at(1)
    assert found.at(8) == found.at(4)
    profile = measured(device, found, 4)
    (unit,) = profile.units
    assert (unit.flops_per_s, unit.bytes_per_s, unit.efficiency) == (6e9, 12e9, None)
    assert profile.memory.bytes_per_s == 12e9


def test_another_machine_has_another_identity(device: DeviceFacts) -> None:
    for change in (
        {"cores_usable": device.cores_usable + 1},
        {"cpu_model": "another"},
        {"cpu_features": frozenset({"sve"})},
        {"caches": (Cache(1, 1024),)},
        {"memory_total_bytes": device.memory_total_bytes + (4 << 30)},
    ):
        assert machine_identity(replace(device, **change)) != machine_identity(device)
    assert machine_identity(replace(device, memory_available_bytes=1)) == machine_identity(device)


@pytest.mark.parametrize(
    "damage", ["", "{", "null", '{"identity": "x"}', '{"identity": "x", "by_threads": {"1": {"matmul": {}}}}']
)
def test_what_is_kept_and_damaged_is_measured_anew(device: DeviceFacts, tmp_path: Path, damage: str) -> None:
    (tmp_path / f"benchmark-{machine_identity(device)}.json").write_text(damage)
    assert benchmark.kept(tmp_path, device) is None


def test_what_was_copied_from_another_machine_is_not_used(device: DeviceFacts, tmp_path: Path) -> None:
    foreign = made_up(device).model_dump(by_alias=True) | {"identity": "0" * 16}
    (tmp_path / f"benchmark-{machine_identity(device)}.json").write_text(json.dumps(foreign))
    assert benchmark.kept(tmp_path, device) is None


def test_a_benchmark_that_cannot_run_is_one_clear_error(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(benchmark, "_PROGRAM", tmp_path / "absent.py")
    with pytest.raises(SettingsError, match="numpy"):
        benchmark.measure(device, repetitions=1)


def test_calibrations_are_kept_by_machine_engine_and_types(device: DeviceFacts, tmp_path: Path) -> None:
    unit = measured(device, made_up(device), 1).units[0].model_copy(update={"efficiency": Efficiency()})
    entry = Calibrated(identity="i", engine="e 1", weight_types=("Q4_1", "Q8_0"), kv_type="f16", by_threads={1: unit})
    calibrated.keep(tmp_path, entry)
    assert calibrated.kept(tmp_path, "i", "e 1", {"Q8_0", "Q4_1"}, "f16") == entry
    for other in (
        ("j", "e 1", {"Q8_0", "Q4_1"}, "f16"),
        ("i", "e 2", {"Q8_0", "Q4_1"}, "f16"),
        ("i", "e 1", {"Q8_0"}, "f16"),
        ("i", "e 1", {"Q8_0", "Q4_1"}, "q8_0"),
    ):
        assert calibrated.kept(tmp_path, *other) is None


def test_caches_are_read_from_the_core_outwards(tmp_path: Path) -> None:
    folder = tmp_path / "devices" / "system" / "cpu" / "cpu0" / "cache"
    for index, (level, kind, size, shared) in enumerate(
        [("3", "Unified", "8192K", "0-7"), ("1", "Data", "48K", "0,4"), ("1", "Instruction", "32K", "0"),
         ("2", "Unified", "2M", ""), ("x", "Unified", "1K", "0"), ("4", "Unified", "lots", "0"),
         ("5", "Data", "0K", "0")]
    ):  # fmt: skip
        (folder / f"index{index}").mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
            (folder / f"index{index}" / name).write_text(text + "\n")
    assert read_caches(tmp_path) == (Cache(1, 48 << 10, 2), Cache(2, 2 << 20, None), Cache(3, 8 << 20, 8))
    assert read_caches(tmp_path / "absent") == ()
