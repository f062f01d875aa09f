"""Options that several commands of `isthmus router` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: $ISTHMUS_CONFIG).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Url = Annotated[str | None, typer.Option("--url", help="Base URL of the router; default: from the settings.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="ISTHMUS_API_KEY",
        help="API key, where the router wants one; default: router.client.api_key_file, else the key that a router of "
        "this home leaves for its commands.",
    ),
]
