"""Checks the caller's key before anything else of a request is looked at."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from router.keys.ring import Keyring
from shared.errors import ClientError, Forbidden, Unauthenticated
from shared.keys import ApiKey, Scope, require


class Doorkeeper:
    """Knows the keys; with none configured (loopback only) everyone may do everything but loosen privacy."""

    def __init__(
        self,
        keys: Keyring,
        on_denied: Callable[[web.Request, ClientError], None] = lambda request, error: None,
    ) -> None:
        """`on_denied` hears of each caller who is turned away."""
        self._keys = keys
        self._on_denied = on_denied

    def admit(self, request: web.Request, scope: Scope | None) -> ApiKey | None:
        """The caller's key, which has `scope` (None: any known key will do).

        Raises:
            Unauthenticated: no known key. Forbidden: the key lacks the scope.
        """
        if not self._keys.asks:
            return None
        try:
            key = self._keys.authenticate(request.headers.getall("Authorization", []))
            if scope is not None:
                require(key, scope)
        except (Unauthenticated, Forbidden) as error:
            self._on_denied(request, error)
            raise
        return key
