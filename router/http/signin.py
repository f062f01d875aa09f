"""Lets a browser stand in for an API key: a signed cookie that ends by itself, and a token against forged requests.

The cookie says which key signed in and until when, under a MAC; nothing is kept for it here, so routers that share an
audit key know each other's. The key must still be known. What was signed out stays so in this router.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.clock import Clock
from shared.keys import ApiKey

COOKIE = "isthmus_session"
CSRF_HEADER = "x-csrf-token"
LIFETIME_S = 8 * 3600
_NONCE_BYTES, _MAC_BYTES, _TIME_BYTES = 16, 32, 8
_TOKEN_BYTES = _NONCE_BYTES + _TIME_BYTES + _MAC_BYTES + _MAC_BYTES
_MOST_ENDED = 10_000


@dataclass(frozen=True, slots=True)
class SignedIn:
    """One browser: the key it signed in with, what its requests must carry, and when it ends (Unix seconds)."""

    key: ApiKey
    csrf: str
    expires_unix_s: float
    nonce: bytes


class SignIns:
    """Makes and reads cookies of the keys that are `known` at that moment; `secret` signs them."""

    def __init__(self, known: Callable[[], Sequence[ApiKey]], secret: bytes, clock: Clock) -> None:
        self._known = known
        self._secret = secret
        self._clock = clock
        self._ended: dict[bytes, float] = {}

    def cookie_for(self, key: ApiKey) -> str:
        """A new cookie value for `key`."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        expires = int(self._clock.unix_s() + LIFETIME_S).to_bytes(_TIME_BYTES)
        claim = nonce + expires + self._pseudonym(bytes.fromhex(key.sha256))
        return base64.urlsafe_b64encode(claim + self._mac(b"cookie", claim)).rstrip(b"=").decode()

    def read(self, cookie: str) -> SignedIn | None:
        """Who holds this cookie; None where it was not made here, has ended, or its key is gone."""
        try:
            raw = base64.b64decode(cookie.encode("ascii") + b"==", altchars=b"-_", validate=True)
        except ValueError:
            return None
        claim, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
        if len(raw) != _TOKEN_BYTES or not hmac.compare_digest(self._mac(b"cookie", claim), mac):
            return None
        nonce = claim[:_NONCE_BYTES]
        expires = int.from_bytes(claim[_NONCE_BYTES : _NONCE_BYTES + _TIME_BYTES])
        pseudonym = claim[_NONCE_BYTES + _TIME_BYTES :]
        now_s = self._clock.unix_s()
        key = next((k for k in self._known() if self._pseudonym(bytes.fromhex(k.sha256)) == pseudonym), None)
        if key is None or nonce in self._ended or now_s >= min(expires, key.expires_unix_s or expires):
            return None
        return SignedIn(key, self._mac(b"csrf", nonce).hex(), float(expires), nonce)

    def end(self, signed_in: SignedIn) -> None:
        """Take this cookie no more."""
        now_s = self._clock.unix_s()
        if len(self._ended) >= _MOST_ENDED:
            self._ended = {nonce: until for nonce, until in self._ended.items() if until > now_s}
        self._ended[signed_in.nonce] = signed_in.expires_unix_s

    def _pseudonym(self, key_digest: bytes) -> bytes:
        """Names a key in a cookie without showing the digest that the settings hold."""
        return self._mac(b"key", key_digest)

    def _mac(self, purpose: bytes, data: bytes) -> bytes:
        return hmac.new(self._secret, purpose + b"\0" + data, hashlib.sha256).digest()
