"""A document in one file: who reads it for every request looks at it once a second, and writers see it at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from shared.errors import SettingsError
from shared.state.register import FileRegister
from shared.testing.clock import ManualClock


@dataclass(frozen=True, slots=True)
class Names:
    names: tuple[str, ...] = ()
    revision: int = 0


def _register(path: Path, clock: ManualClock | None = None) -> FileRegister[Names]:
    return FileRegister(path, Names(), setting="names.file", title="The register of names", clock=clock)


async def test_without_a_clock_every_read_sees_the_last_write(tmp_path: Path) -> None:
    here, there = _register(tmp_path / "names.json"), _register(tmp_path / "names.json")
    for name in ("a", "b"):
        await there.update(lambda names, name=name: replace(names, names=(name,)))
        assert here.content.names == (name,)


async def test_with_a_clock_a_second_passes_before_the_file_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, path = ManualClock(), tmp_path / "names.json"
    here, there = _register(path, clock), _register(path)
    looks = 0
    stat = Path.stat

    def counted(self: Path, **options: bool) -> object:
        nonlocal looks
        looks += self == path
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", counted)
    for _ in range(100):
        assert here.content.names == ()
    assert looks == 0, "it was read when it was opened"
    await there.update(lambda names: replace(names, names=("a",)))
    looks = 0
    await clock.advance(0.999)
    assert here.content.names == () and looks == 0
    await clock.advance(0.001)
    assert [here.content.names for _ in range(100)] == [("a",)] * 100 and looks == 1


async def test_who_changes_it_sees_the_change_at_once(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "names.json"
    here, there = _register(path, clock), _register(path)
    await there.update(lambda names: replace(names, names=("a",)))
    await here.update(lambda names: replace(names, names=(*names.names, "b")))
    assert here.content == Names(("a", "b"), 2)
    here.keep(Names(("c",), 3))
    assert here.content.names == ("c",)
    await there.update(lambda names: replace(names, names=("d",)))
    await here.refresh()
    assert here.content.names == ("d",)


async def test_a_file_that_cannot_be_read_is_said_to_every_reader(tmp_path: Path) -> None:
    """Nobody goes by what it held before: the key that was revoked in it might be the one that asks."""
    clock, path = ManualClock(), tmp_path / "names.json"
    here = _register(path, clock)
    await here.update(lambda names: replace(names, names=("a",)))
    path.write_bytes(b"{")
    await clock.advance(1)
    for _ in range(3):
        with pytest.raises(SettingsError, match="cannot be read"):
            _ = here.content
    await _register(tmp_path / "other.json").update(lambda names: replace(names, names=("b",)))
    (tmp_path / "other.json").replace(path)
    assert here.content.names == ("b",)
