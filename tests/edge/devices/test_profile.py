"""Device profiles: what a file may say, and what is said of a file that does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.devices.probe import probe
from edge.devices.profile import (
    DeviceProfile,
    find_profile,
    profile_of,
    read_profile,
    shipped_profiles,
    size_in_bytes,
    with_memory,
)
from edge.devices.unit import UnitKind
from shared.errors import SettingsError

GOOD = """
name: small board
memory: {available: 6GiB, page: 16KiB, bytes_per_s: 9.0e+9}
storage: {bytes_per_s: 90e+6, request_s: 0.0004}
"""


def test_sizes_are_written_as_people_write_them(tmp_path: Path) -> None:
    path = tmp_path / "board.yaml"
    path.write_text(GOOD)
    profile = read_profile(path)
    assert (profile.name, profile.memory.available, profile.memory.page) == ("small board", 6 << 30, 16384)
    assert (profile.storage.bytes_per_s, profile.storage.readahead) == (90e6, 128 << 10)
    assert with_memory(profile, "512MiB").memory.available == 512 << 20


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("name: x\n", "memory"),
        ("name: x\nmemory: {available: 0}\n", "memory.available"),
        ("name: x\nmemory: {available: lots}\n", "memory.available"),
        ("name: x\nmemory: {available: 1GiB, speed: 3}\n", "memory.speed"),
        ("name: x\nmemory: {available: 1GiB, bytes_per_s: .nan}\n", "memory.bytes_per_s"),
        ("name: x\nmemory: {available: 1GiB}\nstorage: {bytes_per_s: 0}\n", "storage.bytes_per_s"),
        ("name: x\nmemory: {available: 1GiB, page: 3000}\n", "memory.page"),
        ("name: x\nmemory: {available: 1GiB, page: 1}\n", "memory.page"),
        ("name: x\nmemory: {available: 1GiB, bytes_per_s: 1e-300}\n", "memory.bytes_per_s"),
        ("name: x\nmemory: {available: 1GiB}\nmemory: {available: 2GiB}\n", "profile"),
        ("name: 2026-13-45\nmemory: {available: 1GiB}\n", "profile"),
        ("name: " + "[" * 9000, "profile"),
        ("name: x\nmemory: {available: 1GiB}\n" + "#" * (1 << 20), "profile"),
        ("- 1\n", "profile"),
        ("a: [", "profile"),
    ],
)
def test_a_fault_is_named_by_its_field(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as refused:
        read_profile(path)
    assert refused.value.param == field


def test_a_missing_file_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        read_profile(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("text", "size"), [("8GiB", 8 << 30), ("512MB", 512_000_000), ("4096", 4096), ("1.5KiB", 1536)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_in_bytes(text, param="memory") == size


@pytest.mark.parametrize("text", ["", "lots", "-1GiB", "0", "8 Gigs", "nan", "9999999PiB"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(SettingsError) as refused:
        size_in_bytes(text, param="memory")
    assert refused.value.param == "memory"


def test_this_device_has_pages_and_memory() -> None:
    profile = profile_of(probe())
    assert profile.memory.page in (4096, 16384, 65536)
    assert profile.memory.available > 1 << 20


UNIT = "{name: cpu, kind: cpu, flops_per_s: 1e9, bytes_per_s: 1e9}"


def figures(profile: DeviceProfile) -> set[str]:
    """Paths of the figures that a profile states for itself."""
    found = {f"memory.{name}" for name in profile.memory.model_fields_set}
    found |= {f"storage.{name}" for name in profile.storage.model_fields_set}
    for unit in profile.units:
        stated = unit.model_fields_set - {"name", "kind", "description", "features", "delegation", "efficiency"}
        found |= {f"units.{unit.name}.{name}" for name in stated}
        stated = unit.delegation.model_fields_set - {"kind", "operators"}
        found |= {f"units.{unit.name}.delegation.{name}" for name in stated}
    return found


def test_four_devices_are_described() -> None:
    assert shipped_profiles() == (
        "jetson-orin-nano",
        "laptop-ryzen-7840u",
        "raspberry-pi-5",
        "snapdragon-8-gen-3-phone",
    )
    phone = find_profile("snapdragon-8-gen-3-phone")
    assert {unit.kind for unit in phone.units} == {UnitKind.CPU, UnitKind.GPU, UnitKind.NPU}


@pytest.mark.parametrize("name", shipped_profiles())
def test_every_figure_of_a_shipped_profile_has_a_source(name: str) -> None:
    profile = find_profile(name)
    missing = figures(profile) - set(profile.sources)
    # The type of weights that an NPU compiles is part of how it is compiled.
    assert {figure for figure in missing if "npu.delegation" not in figure} == set()
    assert set(profile.sources) <= figures(profile)
    assert all(len(source) > 5 for source in profile.sources.values())


def test_a_profile_that_is_not_shipped_is_answered_with_those_that_are() -> None:
    with pytest.raises(SettingsError, match="raspberry-pi-5"):
        find_profile("commodore-64")
    with pytest.raises(SettingsError, match="cannot be read"):
        find_profile("absent.yaml")


@pytest.mark.parametrize(
    ("units", "field"),
    [
        ("[{name: cpu, kind: tpu, flops_per_s: 1, bytes_per_s: 1}]", "units.0.kind"),
        ("[{name: cpu, kind: cpu, flops_per_s: 0, bytes_per_s: 1}]", "units.0.flops_per_s"),
        ("[{name: cpu, kind: cpu, flops_per_s: .inf, bytes_per_s: 1}]", "units.0.flops_per_s"),
        ("[{name: cpu, kind: cpu, flops_per_s: 5.0e-324, bytes_per_s: 1}]", "units.0.flops_per_s"),
        ("[{name: cpu, kind: cpu, bytes_per_s: 1}]", "units.0.flops_per_s"),
        ("[{name: 'a b', kind: cpu, flops_per_s: 1, bytes_per_s: 1}]", "units.0.name"),
        (f"[{UNIT}, {UNIT}]", "units"),
        ("[{name: gpu, kind: gpu, flops_per_s: 1, bytes_per_s: 1}]", "units"),
        ("[{name: cpu, kind: cpu, flops_per_s: 1, bytes_per_s: 1, delegation: {kind: whole_graph}}]", "units"),
        ("[{name: cpu, kind: cpu, flops_per_s: 1, bytes_per_s: 1, efficiency: {product_flops: 0}}]",
         "units.0.efficiency.product_flops"),
        ("[{name: cpu, kind: cpu, flops_per_s: 1, bytes_per_s: 1, efficiency: {product_flops: 1.0e-320}}]",
         "units.0.efficiency.product_flops"),
    ],
)  # fmt: skip
def test_a_fault_of_a_unit_is_named_by_its_field(tmp_path: Path, units: str, field: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(f"name: x\nmemory: {{available: 1GiB}}\nunits: {units}\n")
    with pytest.raises(SettingsError) as refused:
        read_profile(path)
    assert refused.value.param == field
