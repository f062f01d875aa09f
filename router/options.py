"""Options that several commands of `isthmus router` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: $ISTHMUS_CONFIG).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
