"""Checks the caller's key before anything else of a request is looked at."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from aiohttp import web

from router.http.signin import COOKIE, CSRF_HEADER, SignedIn, SignIns
from router.keys.ring import Keyring
from shared.errors import ClientError, Forbidden, Unauthenticated
from shared.http.hosts import check_near
from shared.keys import ApiKey, Scope, bearers_in, require
from shared.local_keys import is_within_machine

COUNTED = web.RequestKey("counted", bool)
"""Set on a request that was turned away and needs no record of its own."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Doorkeeper:
    """Knows the keys; with none configured (loopback only) everyone may do everything but loosen privacy."""

    def __init__(
        self,
        keys: Keyring,
        on_denied: Callable[[web.Request, ClientError], bool] = lambda request, error: True,
        *,
        signins: SignIns | None = None,
    ) -> None:
        """`on_denied` hears of each caller who is turned away, and says whether the request needs a record; `signins`
        reads the cookies of browsers."""
        self._keys = keys
        self._on_denied = on_denied
        self._signins = signins

    @property
    def asks(self) -> bool:
        """Whether callers need a key."""
        return self._keys.asks

    def admit(self, request: web.Request, scope: Scope | None) -> ApiKey | None:
        """The caller's key, which has `scope` (None: any known key will do).

        Raises:
            Unauthenticated: no known key. Forbidden: the key lacks the scope, or a page elsewhere sent the request.
        """
        try:
            if not self._keys.asks:
                check_near(request.headers)
                return None
            key = self._caller(request)
            if scope is not None:
                require(key, scope)
        except (Unauthenticated, Forbidden) as error:
            if not self._on_denied(request, error):
                request[COUNTED] = True
            raise
        return key

    def signed_in(self, request: web.Request) -> SignedIn | None:
        """The browser that sends a request, by its cookie; nothing else of the request is checked."""
        cookie = request.cookies.get(COOKIE)
        return None if cookie is None or self._signins is None else self._signins.read(cookie)

    def recognise(self, given: str) -> ApiKey:
        """The known key that `given` is. Raises Unauthenticated."""
        return self._keys.authenticate([f"Bearer {given}"])

    def _caller(self, request: web.Request) -> ApiKey:
        bearers = bearers_in(request.path, lambda name: request.headers.getall(name, []))
        signed_in = None if bearers else self.signed_in(request)
        if signed_in is None:
            return self._keys.authenticate(bearers, within_machine=_is_within_machine(request))
        token = request.headers.get(CSRF_HEADER, "").encode(errors="surrogateescape")  # whatever bytes were sent
        if request.method not in _SAFE and not hmac.compare_digest(token, signed_in.csrf.encode()):
            raise Forbidden(f"A request with a cookie needs the header {CSRF_HEADER}.", code="csrf_token_missing")
        return signed_in.key


def _is_within_machine(request: web.Request) -> bool:
    transport = request.transport
    if transport is None:
        return False
    return is_within_machine(transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
