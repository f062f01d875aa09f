"""Ends a running `isthmus up` through its control socket, and waits until nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import aiohttp

from shared.errors import IsthmusError, NotFound
from shared.launcher import preflight
from shared.launcher.lock import is_held
from shared.launcher.settings import UpSettings
from shared.settings import load

_ASK_S = 10.0
_LOOK_S = 0.1
_SWEEP_S = 30.0
"""What ending takes beyond the limit that tiers get: killed processes have to be reaped."""


def stop(*, config: Path | None, as_json: bool) -> int:
    """0 once nothing of the run is left.

    Raises:
        NotFound: nothing runs in this home. IsthmusError: it has not ended within its own limit.
    """
    settings = load(UpSettings, "up", config)
    asyncio.run(_ask(preflight.control_socket(settings.folder)))
    until_s = time.monotonic() + settings.stop_limit_s + _SWEEP_S
    while is_held(settings.folder):  # the socket goes as the end begins, the lock with the last process
        if time.monotonic() > until_s:
            raise IsthmusError(f"The run has not ended within {settings.stop_limit_s + _SWEEP_S:.0f} s.")
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
