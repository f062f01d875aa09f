"""Keeps an installed version on the disk for as long as a process uses it: a shared lock on the version's folder.

The kernel drops the lock with its holder, however that ends, so that a crash leaves nothing to clean up.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import NotFound


@contextmanager
def lease(folder: Path) -> Iterator[None]:
    """Use the version in `folder` for the block; meanwhile nothing removes it.

    Raises:
        NotFound: it has just been removed.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFound(f"{folder.name} cannot be used: {error.strerror}.", param="name") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotFound(f"{folder.name} is being removed.", param="name") from None
        if not folder.is_dir():  # removed between opening and locking
            raise NotFound(f"{folder.name} was removed.", param="name")
        yield
    finally:
        os.close(fd)


@contextmanager
def unused(folder: Path) -> Iterator[bool]:
    """Whether nobody uses the version in `folder`; if so, nobody begins to within the block."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)
