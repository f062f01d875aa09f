"""One run a home: the lock that says so, and whether somebody holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from shared.errors import SettingsError

LOCK_NAME = "up.lock"


@contextlib.contextmanager
def only_run(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`; the kernel drops it with the process, however that ends.

    Raises:
        SettingsError: another run holds it, or it cannot be made.
    """
    path = folder / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise SettingsError(f"{path} cannot be written: {why}.", param="up.run_dir") from None
    try:
        if not _taken(descriptor):
            raise SettingsError(
                f"isthmus up already runs in {folder}. Stop it first: isthmus stop. Or set another ISTHMUS_HOME.",
                param="up.run_dir",
            )
        yield
    finally:
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether a run holds the lock of `folder`."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _taken(descriptor)
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
