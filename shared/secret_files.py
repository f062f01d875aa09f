"""Reads the one secret that a file named by the settings holds."""

from __future__ import annotations

import os
from pathlib import Path

from shared.errors import SettingsError


def secret_in(path: Path | None, setting: str) -> str | None:
    """The secret in the file at `path`, which `setting` names; None where no file is named.

    Raises:
        SettingsError: it cannot be read, or holds something else.
    """
    if path is None:
        return None
    try:
        value = path.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0).lower() if isinstance(error, OSError) else "not text"
        raise SettingsError(f"The file {path} of {setting}: {reason}.", param=setting) from None
    if not value or not value.isascii() or any(c.isspace() for c in value):
        raise SettingsError(f"The file {path} of {setting} does not hold one key.", param=setting)
    return value
