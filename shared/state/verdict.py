"""Tells from an error of Redis whether the command may have been done, and whether another server is to be asked."""

from __future__ import annotations

from enum import Enum

from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as NoConnection


class Verdict(Enum):
    """What an error says of the server, and of the command."""

    REFUSED = "it serves, and does not do this: it is full, say"
    NOT_PRIMARY = "it serves readers; another is the primary, or will be"
    SERVES_NOBODY = "it answers, and serves neither writers nor readers"
    LOST = "no answer: whether the command was done is not known"

    @property
    def undone(self) -> bool:
        """Whether the command was surely not done, and another server may do it."""
        return self in (Verdict.NOT_PRIMARY, Verdict.SERVES_NOBODY)

    @property
    def serves(self) -> bool:
        """Whether the server did answer as one that works."""
        return self in (Verdict.REFUSED, Verdict.NOT_PRIMARY)


# Errors whose code the client knows by class lose it from their text; the others keep it there. Inside a script an
# error may stand within other words.
_NOT_PRIMARY = (ReadOnlyError, MovedError)
_NOT_PRIMARY_CODES = ("READONLY", "NOREPLICAS")
_SERVES_NOBODY = (BusyLoadingError, MasterDownError, ClusterDownError)
_SERVES_NOBODY_CODES = ("MASTERDOWN", "CLUSTERDOWN", "on a stale replica", "the cluster is down")


def verdict_of(error: BaseException) -> Verdict:
    """What `error`, which a command ended with, says."""
    if type(error) is NoConnection and isinstance(error.__context__, ReadOnlyError):
        # The client of a Sentinel group turns the one into the other.
        return Verdict.NOT_PRIMARY
    if isinstance(error, _NOT_PRIMARY):
        return Verdict.NOT_PRIMARY
    if isinstance(error, _SERVES_NOBODY):
        return Verdict.SERVES_NOBODY
    if not isinstance(error, ResponseError):
        return Verdict.LOST
    said = str(error)
    if any(code in said for code in _NOT_PRIMARY_CODES):
        return Verdict.NOT_PRIMARY
    if any(code in said for code in _SERVES_NOBODY_CODES):
        return Verdict.SERVES_NOBODY
    return Verdict.REFUSED
