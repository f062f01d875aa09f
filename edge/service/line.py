"""The order in which those who wait get their turn: one after the other, owner by owner, so that no key waits for
another one's backlog.

Within one owner it is first come, first served. An owner who comes anew stands behind the others once, not behind all
that they have waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, Protocol, TypeVar


class Owned(Protocol):
    """Who waits, for whom."""

    @property
    def owner(self) -> Hashable:
        """Whose request it is."""

    @property
    def stays(self) -> bool:
        """Whether it keeps its place when others lose theirs."""


T = TypeVar("T", bound=Owned)


class FairLine(Generic[T]):
    """Whoever waits, in order of turns."""

    def __init__(self) -> None:
        self._by_owner: dict[Hashable, deque[T]] = {}
        """In the order in which the owners have their next turn."""

    def __len__(self) -> int:
        return sum(len(own) for own in self._by_owner.values())

    def __iter__(self) -> Iterator[T]:
        """All of them as their turns come."""
        rounds = max((len(own) for own in self._by_owner.values()), default=0)
        for turn in range(rounds):
            yield from [own[turn] for own in self._by_owner.values() if turn < len(own)]

    def append(self, waiter: T) -> None:
        """Stand at the end of the owner's own."""
        self._by_owner.setdefault(waiter.owner, deque()).append(waiter)

    def remove(self, waiter: T) -> None:
        """Leave the line; who is not in it is left alone."""
        own = self._by_owner.get(waiter.owner)
        if own is not None and waiter in own:
            own.remove(waiter)
            if not own:
                del self._by_owner[waiter.owner]

    def take(self, waiter: T) -> None:
        """Leave the line because its turn has come: the owner's next one comes after everybody else's."""
        self.remove(waiter)
        rest = self._by_owner.pop(waiter.owner, None)
        if rest is not None:
            self._by_owner[waiter.owner] = rest

    def position_of_next(self, owner: Hashable) -> int:
        """The place, from 1, that one more of `owner` would have."""
        own = len(self._by_owner.get(owner, ()))
        ahead, rounds = own, own + 1  # owners whose turn comes first are served once more
        for other, line in self._by_owner.items():
            if other == owner:
                rounds = own
            else:
                ahead += min(len(line), rounds)
        return ahead + 1

    def to_make_room_for(self, owner: Hashable) -> T | None:
        """Whose place in a full line one more of `owner` takes: the last one that may lose it of whoever has most
        waiting, if that is more than `owner` would have; None where everybody has a fair share."""
        greediest = max(self._by_owner.values(), key=len, default=None)
        own = len(self._by_owner.get(owner, ()))
        if greediest is None or len(greediest) <= own + 1:
            return None
        return next((waiter for waiter in reversed(greediest) if not waiter.stays), None)

    def dismiss(self) -> list[T]:
        """Empty the line but for those who stay; who had to leave it."""
        left = [waiter for waiter in self if not waiter.stays]
        kept = {owner: deque(each for each in own if each.stays) for owner, own in self._by_owner.items()}
        self._by_owner = {owner: own for owner, own in kept.items() if own}
        return left
