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
    settings = load(RouterSettings, "router", config)
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
