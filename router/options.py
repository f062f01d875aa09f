"""Options that several commands of `isthmus router` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.settings import RouterSettings
from shared.settings import load

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: $ISTHMUS_CONFIG).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Url = Annotated[str | None, typer.Option("--url", help="Base URL of the router; default: from the settings.")]
Key = Annotated[
    str | None, typer.Option("--key", envvar="ISTHMUS_API_KEY", help="API key, where the router wants one.")
]


def router_url(config: Path | None) -> str:
    """Where the router of these settings is reached from this machine."""
    return load(RouterSettings, "router", config).base_url()
