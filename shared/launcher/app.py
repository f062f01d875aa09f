"""Entry of `isthmus up`: reads settings, takes the lock of this home, runs the session."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shared.clock import SystemClock
from shared.errors import SettingsError
from shared.launcher.console import JsonReporter, Reporter, TextReporter
from shared.launcher.lock import only_run
from shared.launcher.session import Session
from shared.launcher.settings import UpSettings
from shared.settings import FILE_VARIABLE, environment, load


def run(*, tiers: str | None, config: Path | None, as_json: bool, heat: str | None = None) -> int:
    """Start the tiers and keep them until a signal; the exit code.

    Raises:
        SettingsError: another run holds this home, or the machine does not allow a start.
        StartFailed: a tier failed before it was ready.
    """
    settings = load(UpSettings, "up", config, tiers=tiers, heat={"scenario": heat} if heat else None)
    reporter: Reporter = JsonReporter() if as_json else TextReporter()
    folder = _made(settings.folder)
    with only_run(folder):
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


def _why(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
