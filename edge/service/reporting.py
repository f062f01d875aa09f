"""Ways for a beat to reach routers: over HTTP to one, or into the state store that several share."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import aiohttp

from shared.enrolment import SIGNATURE_HEADER
from shared.errors import StateUnavailable
from shared.fleet import Heartbeat, beat_bytes
from shared.http.tls import ClientTls
from shared.state.port import Signed, StateStore

ROUTE = "/fleet/v1/heartbeats"
_SEND_LIMIT_S = 1.0

Signer = Callable[[bytes], str]
"""Gives the signature header for the bytes of a beat."""


class Outcome(StrEnum):
    """How a beat ended."""

    ACCEPTED = "accepted"
    UNREACHABLE = "unreachable"
    UNAUTHORISED = "unauthorised"
    OUT_OF_ORDER = "out_of_order"
    REFUSED = "refused"


_OUTCOMES = {401: Outcome.UNAUTHORISED, 403: Outcome.UNAUTHORISED, 409: Outcome.OUT_OF_ORDER}


class Reporter(Protocol):
    """Takes beats, one at a time."""

    async def report(self, beat: Heartbeat) -> Outcome:
        """Pass `beat` on; whatever goes wrong is an outcome."""

    async def close(self) -> None:
        """Release connections."""


class HttpReporter:
    """Posts beats to one router. `key` is asked once, and again after the router took the last one no more: a router of
    this home has another with each start. `tls` is how an https address is reached; None: as the system trusts."""

    def __init__(
        self, router_url: str, *, key: Callable[[], str | None], sign: Signer | None, tls: ClientTls | None = None
    ) -> None:
        self._url = router_url.rstrip("/") + ROUTE
        self._find_key = key
        self._headers = self._headers_now()
        self._sign = sign
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def report(self, beat: Heartbeat) -> Outcome:
        """See the port."""
        if self._tls is not None:
            self._tls.following.look()
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._tls.context if self._tls is not None else True),
                timeout=aiohttp.ClientTimeout(total=_SEND_LIMIT_S),
                trust_env=False,
                auto_decompress=False,
            )
        raw = beat_bytes(beat)
        headers = self._headers | ({SIGNATURE_HEADER: self._sign(raw)} if self._sign is not None else {})
        try:
            async with self._session.post(self._url, data=raw, headers=headers) as response:
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            return Outcome.UNREACHABLE
        if status == 401:
            self._headers = self._headers_now()
        return Outcome.ACCEPTED if status < 300 else _OUTCOMES.get(status, Outcome.REFUSED)

    def _headers_now(self) -> dict[str, str]:
        key = self._find_key()
        return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    async def close(self) -> None:
        """See the port."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class StoreReporter:
    """Puts beats where routers read them, which check the signature; who may write there is the store's affair."""

    def __init__(self, store: StateStore, *, sign: Signer | None) -> None:
        self._store = store
        self._sign = sign

    async def report(self, beat: Heartbeat) -> Outcome:
        """See the port."""
        raw = beat_bytes(beat)
        signed = Signed(raw, self._sign(raw)) if self._sign is not None else None
        try:
            return Outcome.ACCEPTED if await self._store.publish(beat, signed) else Outcome.OUT_OF_ORDER
        except StateUnavailable:
            return Outcome.UNREACHABLE

    async def close(self) -> None:
        """See the port."""
        await self._store.close()
