"""Ends a running `isthmus up` through its control socket, and waits until it is gone."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import aiohttp

from shared.errors import IsthmusError, NotFound
from shared.launcher import preflight
from shared.launcher.settings import UpSettings
from shared.settings import load

_ASK_S = 10.0
_LOOK_S = 0.1
_LIMIT_S = 120.0


def stop(*, config: Path | None, as_json: bool) -> int:
    """0 once nothing of the run is left.

    Raises:
        NotFound: nothing runs in this home. IsthmusError: it has not ended within two minutes.
    """
    socket = preflight.control_socket(load(UpSettings, "up", config).folder)
    asyncio.run(_ask(socket))
    until_s = time.monotonic() + _LIMIT_S
    while socket.exists():  # the run removes it as it ends
        if time.monotonic() > until_s:
            raise IsthmusError("The run has not ended within two minutes.")
        time.sleep(_LOOK_S)
    print(json.dumps({"stopped": True}) if as_json else "Stopped.")  # noqa: T201 - this is the output
    return 0


async def _ask(socket: Path) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session:
        try:
            timeout = aiohttp.ClientTimeout(total=_ASK_S)
            async with session.post("http://up/stop", timeout=timeout) as answer:
                answer.raise_for_status()
        except (aiohttp.ClientError, OSError, TimeoutError):
            raise NotFound("No isthmus up runs in this home. Start one with: isthmus up") from None
