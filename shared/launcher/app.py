"""Entry of `isthmus up`: reads settings, takes the lock of this home, runs the session."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from shared.clock import SystemClock
from shared.errors import SettingsError
from shared.launcher.console import JsonReporter, Reporter, TextReporter
from shared.launcher.session import Session
from shared.launcher.settings import UpSettings
from shared.settings import FILE_VARIABLE, environment, load

LOCK_NAME = "up.lock"


def run(*, tiers: str | None, config: Path | None, as_json: bool, heat: str | None = None) -> int:
    """Start the tiers and keep them until a signal; the exit code.

    Raises:
        SettingsError: another run holds this home, or the machine does not allow a start.
        StartFailed: a tier failed before it was ready.
    """
    settings = load(UpSettings, "up", config, tiers=tiers, heat={"scenario": heat} if heat else None)
    reporter: Reporter = JsonReporter() if as_json else TextReporter()
    folder = _made(settings.folder)
    with _locked(folder / LOCK_NAME):
        session = Session(settings, _absolute(config), reporter, folder=folder, clock=SystemClock())
        return asyncio.run(session.run())


def _absolute(config: Path | None) -> Path | None:
    """The settings file for the children, who may run in another folder."""
    named = str(config) if config else environment().get(FILE_VARIABLE)
    return Path(named).absolute() if named else None


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(f"The run folder {folder} cannot be made: {_why(error)}.", param="up.run_dir") from None
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One run at a time; the kernel drops the lock with the process, however that ends."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {_why(error)}.", param="up.run_dir") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                f"isthmus up already runs in {path.parent}. Stop it first, or set another ISTHMUS_HOME.",
                param="up.run_dir",
            ) from None
        yield
    finally:
        os.close(descriptor)


def _why(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
