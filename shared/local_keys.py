"""Keys by which programs of one home reach its router: made anew at each start, and worth nothing from elsewhere.

A router writes them into a file that its owner alone reads; commands and the agent of the same home find it there.
Whoever can read it could make a key with `isthmus router keys create` as well, so it opens nothing new. A router takes
them only on connections that begin and end on this machine. They do not make it ask for keys, and since they change
with each start, what a stranger on a stopped router's port was sent is of no use.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import orjson

from shared.keys import ApiKey, Scope, generate, hashed
from shared.settings import home

RESERVED_PREFIX = "local:"
"""How the names of these keys begin, and those of no others."""
_SCOPES: dict[str, frozenset[Scope]] = {
    "commands": frozenset({Scope.INFERENCE, Scope.ADMIN}),
    "agent": frozenset({Scope.FLEET_REPORT}),
}
_PORTS = {"http": 80, "https": 443}
_FILE_BYTES = 4096


class LocalKeys(NamedTuple):
    """One for commands of people, one for the agent's reports."""

    commands: str
    agent: str

    def known(self) -> tuple[ApiKey, ...]:
        """Both as a router knows keys."""
        return tuple(ApiKey(RESERVED_PREFIX + name, hashed(key), _SCOPES[name]) for name, key in self._asdict().items())


def offer(host: str, port: int) -> LocalKeys:
    """New keys of the router that listens at `host` and `port`, written to where this home finds them.

    Raises:
        OSError: they cannot be written.
    """
    keys, path = LocalKeys(generate(), generate()), _path(host, port)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    staged = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(orjson.dumps(keys._asdict()))
    staged.replace(path)
    return keys


def withdraw(host: str, port: int, keys: LocalKeys) -> None:
    """Remove the keys of a router that ends, unless another has taken its place."""
    if offered(host, port) == keys:
        with contextlib.suppress(OSError):
            _path(host, port).unlink()


def offered(host: str, port: int) -> LocalKeys | None:
    """The keys of the router of this home at that address; None where there are none."""
    try:
        with _path(host, port).open("rb") as file:
            return LocalKeys(**orjson.loads(file.read(_FILE_BYTES)))
    except (OSError, TypeError, ValueError):
        return None


def local_key(base_url: str, use: Literal["commands", "agent"]) -> str | None:
    """The key for the router of this home at `base_url`; None where that is no router of this home."""
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    keys = None if host is None or port is None else offered(host, port)
    return None if keys is None else str(getattr(keys, use))


def is_within_machine(peer: object, own: object) -> bool:
    """Whether a connection between these socket addresses did not leave the machine."""
    if not isinstance(peer, tuple) or not isinstance(own, tuple):
        return isinstance(own, str)  # a socket of the file system
    return peer[0] == own[0] or _is_loopback(str(peer[0]))


def _path(host: str, port: int) -> Path:
    place = "loopback" if host in ("localhost", "0.0.0.0", "::", "") or _is_loopback(host) else host  # noqa: S104
    return home() / "local" / f"{place.replace(':', '_').replace('/', '_')}-{port}.json"


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
