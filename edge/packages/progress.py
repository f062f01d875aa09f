"""What long work on packages reports while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """Steps of an installation or verification, in order."""

    WAIT = "wait"
    BUILD = "build"
    FETCH = "fetch"
    COPY = "copy"
    CHECK = "check"
    SYNC = "sync"
    ACTIVATE = "activate"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one step is; `total_bytes` is None where the size is not known or does not apply."""

    step: Step
    done_bytes: int = 0
    total_bytes: int | None = None


ProgressListener = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """A listener for callers that do not show progress."""
    del progress
