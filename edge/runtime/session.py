"""Opens an HTTP session to an engine process: over its socket, with its secret."""

from __future__ import annotations

import aiohttp

from edge.runtime.port import EngineConnection


def engine_session(connection: EngineConnection, *, limit_s: float | None = None) -> aiohttp.ClientSession:
    """A session for whoever closes it; `limit_s` bounds each request as a whole.

    Every request has a connection of its own: the engine ends idle ones whenever it likes, also while a request is on
    its way.
    """
    socket_path = connection.socket_path
    connector = None if socket_path is None else aiohttp.UnixConnector(str(socket_path), force_close=True, limit=0)
    return aiohttp.ClientSession(
        connection.base_url,
        connector=connector,
        headers=connection.headers,
        timeout=aiohttp.ClientTimeout(total=limit_s),
    )
