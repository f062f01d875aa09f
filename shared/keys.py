"""API keys: how a header is read, how keys are kept (hashed) and compared (constant time), what a key may do.

Keys are long random strings, so one SHA-256 is enough: there is nothing to guess that a slow hash would protect
(OWASP Password Storage Cheat Sheet, on high-entropy tokens).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shared.errors import Forbidden, Unauthenticated

KEY_PREFIX = "isk-"
MAX_KEY_CHARS = 512
KEY_HEADER = "x-api-key"
"""Where Anthropic's clients put a key."""
_THEIR_ROUTES = ("/v1/messages", "/v1/models")


class Scope(StrEnum):
    """What a key may do."""

    INFERENCE = "inference"
    PRIVACY_OVERRIDE = "privacy:override"
    FLEET_REPORT = "fleet:report"
    ADMIN_READ = "admin:read"
    """To see what `admin` may change; `admin` includes it."""
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What a key may use; None: as much as it likes. No minute ever holds more than it names."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return (self.requests_per_minute, self.tokens_per_minute, self.concurrent) != (None, None, None)

    def share(self, of: int) -> KeyLimits:
        """The equal part of one among `of` routers that do not hear of each other; at least one of each."""

        def part(limit: int | None) -> int | None:
            return None if limit is None else max(1, limit // max(1, of))

        return KeyLimits(part(self.requests_per_minute), part(self.tokens_per_minute), part(self.concurrent))


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One known key: a name for people, the hex SHA-256 of the secret, its scopes and limits, and its last second."""

    name: str
    sha256: str
    scopes: frozenset[Scope]
    limits: KeyLimits = KeyLimits()
    expires_unix_s: float | None = None


def generate() -> str:
    """A new key with 256 bits of randomness."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hashed(key: str) -> str:
    """Hex SHA-256 of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def takes_key_header(path: str) -> bool:
    """Whether a key may come as `x-api-key` there: on the routes of Anthropic's clients. Elsewhere such a header may be
    meant for a gateway before this process, and says nothing."""
    return any(path == route or path.startswith(f"{route}/") for route in _THEIR_ROUTES)


def bearers_in(path: str, values_of: Callable[[str], Sequence[str]]) -> Sequence[str]:
    """The `Authorization` headers of a request for `path`, or its key in the same form where it came as `x-api-key`;
    `values_of` gives all values of a header by its name.

    Raises:
        Unauthenticated: several such headers, one that is no key, or two different keys, so that nobody can tell whose
            request it is.
    """
    bearers = values_of("authorization")
    plain = values_of(KEY_HEADER) if takes_key_header(path) else ()
    if not plain:
        return bearers
    key = plain[0].strip(" ")
    if len(plain) != 1 or not _is_key(key):
        raise Unauthenticated("One x-api-key header with a key is taken, and nothing else in it.")
    if bearers and not hmac.compare_digest(hashed(bearer_of(bearers)), hashed(key)):
        raise Unauthenticated("Authorization and x-api-key hold two different keys.")
    return (f"Bearer {key}",)


def _is_key(token: str) -> bool:
    return bool(token) and " " not in token and token.isascii() and len(token) <= MAX_KEY_CHARS


def bearer_of(values: Sequence[str]) -> str:
    """The token of the `Authorization` headers `values` (RFC 6750; the scheme's case does not matter, RFC 9110).

    Raises:
        Unauthenticated: none or several headers, another scheme, or an empty or non-ASCII token.
    """
    if len(values) != 1:
        raise Unauthenticated("Exactly one Authorization header with a bearer key is required.")
    scheme, _, token = values[0].partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not _is_key(token):
        raise Unauthenticated("The Authorization header must be 'Bearer' followed by a key.")
    return token


def authenticate(values: Sequence[str], known: Sequence[ApiKey]) -> ApiKey:
    """The known key that the headers carry; every known hash is compared, whatever matches first.

    Raises:
        Unauthenticated: malformed header or unknown key. The key is not echoed.
    """
    digest = hashed(bearer_of(values))
    found = None
    for key in known:
        if hmac.compare_digest(digest, key.sha256):
            found = key
    if found is None:
        raise Unauthenticated("The API key is not known.")
    return found


def may(key: ApiKey | None, scope: Scope) -> bool:
    """Whether `key` may do `scope`; None as in `require`."""
    if key is None:
        return scope is not Scope.PRIVACY_OVERRIDE
    return scope in key.scopes or (scope is Scope.ADMIN_READ and Scope.ADMIN in key.scopes)


def require(key: ApiKey | None, scope: Scope) -> None:
    """Check that `key` may do `scope`; None means that no keys are configured, which only loopback allows.

    Raises:
        Forbidden: the scope is missing. Loosening privacy always needs a key that has the scope.
    """
    if not may(key, scope):
        raise Forbidden(f"This needs a key with the scope {scope}.")
