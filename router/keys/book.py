"""The keys that were made while the router runs: their hashes, what they may do, and which were revoked; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from shared.errors import InvalidRequest, NotFound
from shared.keys import ApiKey, KeyLimits, Scope

_SHOWN_CHARS = 12
"""Of a hash, to tell keys of one name apart."""


@dataclass(frozen=True, slots=True)
class MadeKey:
    """One key. Times are wall-clock seconds; a revoked key is remembered, so that its name stays explained."""

    name: str
    sha256: str
    scopes: tuple[Scope, ...]
    made_unix_s: float
    limits: KeyLimits = field(default_factory=KeyLimits)
    expires_unix_s: float | None = None
    revoked_unix_s: float | None = None

    @property
    def key_id(self) -> str:
        """The beginning of its hash."""
        return self.sha256[:_SHOWN_CHARS]

    def state(self, now_unix_s: float) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoked_unix_s is not None:
            return "revoked"
        expired = self.expires_unix_s is not None and self.expires_unix_s <= now_unix_s
        return "expired" if expired else "active"


@dataclass(frozen=True, slots=True)
class KeyBook:
    """All of them, in the order in which they were made."""

    keys: tuple[MadeKey, ...] = ()
    revision: int = 0

    def with_key(self, key: MadeKey, now_unix_s: float) -> KeyBook:
        """This book and `key`.

        Raises:
            InvalidRequest: an active key has that name: the audit log could not tell them apart.
        """
        if any(each.name == key.name and each.state(now_unix_s) == "active" for each in self.keys):
            raise InvalidRequest("An active key has this name. Revoke it first, or choose another.", param="name")
        return replace(self, keys=(*self.keys, key))

    def without(self, named: str, now_unix_s: float) -> KeyBook:
        """This book with the active key of that name or id revoked.

        Raises:
            NotFound: there is none.
        """
        found = [each for each in self.keys if named in (each.name, each.key_id) and each.revoked_unix_s is None]
        if not found:
            raise NotFound("No key that is not revoked has this name or id.", param="key")
        revoked = [replace(each, revoked_unix_s=round(now_unix_s, 3)) if each in found else each for each in self.keys]
        return replace(self, keys=tuple(revoked))

    def usable(self) -> Iterable[ApiKey]:
        """Keys that were not revoked; whether one has expired is judged when it is used."""
        for each in self.keys:
            if each.revoked_unix_s is None:
                yield ApiKey(each.name, each.sha256, frozenset(each.scopes), each.limits, each.expires_unix_s)


def shown(book: KeyBook, now_unix_s: float) -> list[dict[str, Any]]:
    """The book as JSON values, without whole hashes."""
    return [
        {
            "id": each.key_id,
            "name": each.name,
            "state": each.state(now_unix_s),
            "scopes": sorted(each.scopes),
            "requests_per_minute": each.limits.requests_per_minute,
            "tokens_per_minute": each.limits.tokens_per_minute,
            "concurrent": each.limits.concurrent,
            "made_unix_s": each.made_unix_s,
            "expires_unix_s": each.expires_unix_s,
            "revoked_unix_s": each.revoked_unix_s,
        }
        for each in book.keys
    ]
