"""Device profiles: what a file may say, and what is said of a file that does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.devices.probe import probe
from edge.devices.profile import profile_of, read_profile, size_in_bytes, with_memory
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
