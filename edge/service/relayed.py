"""Passes the engine's own metrics on, names and labels as the engine writes them, after those of the agent."""

from __future__ import annotations

from edge.service.admission import Admission
from edge.service.engine_client import EngineClient
from shared.errors import IsthmusError

_LIMIT_S = 1.0
"""A scrape has ten seconds by default; an engine that computes answers in milliseconds."""


class RelayedMetrics:
    """`sleeps`: the engine gives its memory back while nobody needs it. A scrape would wake it, or keep it awake, so
    that it is asked only while it serves somebody."""

    def __init__(self, client: EngineClient, admission: Admission, *, sleeps: bool) -> None:
        self._client = client
        self._admission = admission
        self._sleeps = sleeps

    async def text(self) -> bytes:
        """In the Prometheus text format; nothing while there is no engine, it has none or says nothing in time."""
        if self._sleeps and not self._admission.busy:
            return b""
        try:
            text = await self._client.metrics(_LIMIT_S)
        except IsthmusError:
            return b""
        return text if text.endswith(b"\n") else b""
