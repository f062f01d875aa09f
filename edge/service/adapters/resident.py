"""Decides which adapters are loaded: pure rules over a frozen set, so that every order of events can be tested.

Bounded by bytes and by count. Room is made by letting go of what was used longest ago; never of what is pinned, and
never of what a request uses now: then the newcomer waits. The exception is an older version of an adapter that is
loaded anew: its requests end in the old engine process, so it may go at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Limits:
    """What the loaded adapters together may take."""

    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Resident:
    """One loaded version of an adapter. `used` grows with every use of any."""

    digest: str
    name: str
    size_bytes: int
    used: int = 0


@dataclass(frozen=True, slots=True)
class Residents:
    """What is loaded, in the engine's order, and the names that stay whatever happens."""

    loaded: tuple[Resident, ...] = ()
    pinned: frozenset[str] = frozenset()
    clock: int = 0

    def holds(self, digests: Iterable[str]) -> bool:
        """Whether all of `digests` are loaded."""
        return set(digests) <= {resident.digest for resident in self.loaded}

    def used(self, digests: Iterable[str]) -> Residents:
        """After a use of `digests`."""
        wanted, clock = set(digests), self.clock + 1
        loaded = tuple(replace(each, used=clock) if each.digest in wanted else each for each in self.loaded)
        return replace(self, loaded=loaded, clock=clock)

    def pin(self, name: str) -> Residents:
        """After `name` was pinned: its loaded version, and each that takes its place."""
        return replace(self, pinned=self.pinned | {name})

    def unpin(self, name: str) -> Residents:
        """After the pin of `name` was taken off."""
        return replace(self, pinned=self.pinned - {name})

    def only(self, digests: Iterable[str]) -> Residents:
        """What is left when the engine says that it has `digests` alone."""
        wanted = set(digests)
        return replace(self, loaded=tuple(each for each in self.loaded if each.digest in wanted))

    def after(self, load: Load) -> Residents:
        """After `load` was carried out."""
        return replace(self, loaded=load.loaded).used(each.digest for each in load.added)


@dataclass(frozen=True, slots=True)
class Load:
    """What to load: `loaded` is the whole set that results."""

    loaded: tuple[Resident, ...]
    added: tuple[Resident, ...]
    evicted: tuple[Resident, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Wait:
    """Adapters that are used now hold the room."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """It does not fit, whatever is let go of that may be."""

    needed_bytes: int
    needed_count: int


def plan_load(
    residents: Residents, wanted: tuple[Resident, ...], in_use: frozenset[str], limits: Limits
) -> Load | Wait | TooLarge:
    """How `wanted`, of which some may be loaded already, come to be loaded together.

    `in_use` are the digests that requests use now.
    """
    asked = {each.digest for each in wanted}
    names = {each.name for each in wanted}
    added = tuple(each for each in wanted if not residents.holds([each.digest]))
    replaced = [each for each in residents.loaded if each.name in names and each.digest not in asked]
    kept = [each for each in residents.loaded if each not in replaced]
    fixed = [each for each in kept if each.digest in asked or each.name in residents.pinned]
    if not _fit([*fixed, *added], limits):
        together = [*fixed, *added]
        return TooLarge(sum(each.size_bytes for each in together), len(together))
    idle = [each for each in kept if each not in fixed and each.digest not in in_use]
    evicted = list(replaced)
    for victim in sorted(idle, key=lambda each: each.used):
        if _fit([*kept, *added], limits):
            break
        kept.remove(victim)
        evicted.append(victim)
    if not _fit([*kept, *added], limits):
        return Wait()
    return Load((*kept, *added), added, tuple(evicted))


def plan_unload(residents: Residents, name: str) -> Load:
    """What remains without any version of `name`."""
    gone = tuple(each for each in residents.loaded if each.name == name)
    return Load(tuple(each for each in residents.loaded if each not in gone), (), gone)


def _fit(adapters: list[Resident], limits: Limits) -> bool:
    return len(adapters) <= limits.count and sum(each.size_bytes for each in adapters) <= limits.size_bytes
