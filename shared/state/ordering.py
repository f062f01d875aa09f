"""Decides whether a heartbeat is news: later beats of one process win, and a replaced process never comes back."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

MAX_RETIRED = 8
"""Former instances remembered for one backend, so that a late beat of a dead process cannot displace the living."""


class Beat(Protocol):
    """A heartbeat, or a report of one."""

    @property
    def instance(self) -> str: ...

    @property
    def sequence(self) -> int: ...


class Order(Enum):
    """How a heartbeat stands to what is kept."""

    NEWER = "newer"
    REPEATED = "repeated"
    """The same beat again, as after a lost answer: accepted, and no sign of life."""
    OLDER = "older"


def order_of(new: Beat, kept: Beat | None, retired: tuple[str, ...]) -> Order:
    """Compare `new` with the `kept` beat of the same backend and its `retired` instances."""
    if kept is None:
        return Order.NEWER
    if new.instance != kept.instance:
        return Order.OLDER if new.instance in retired else Order.NEWER
    if new.sequence == kept.sequence:
        return Order.REPEATED
    return Order.NEWER if new.sequence > kept.sequence else Order.OLDER
