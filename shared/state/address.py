"""Where Redis is: one server, a Sentinel group or a Cluster, in one URL; with user, password and certificates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from shared.errors import SettingsError

_PLACE = re.compile(r"(?:(?P<host>[A-Za-z0-9._-]+)|\[(?P<six>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?")
_FORMS = "redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// (rediss+… with TLS)"


class _Invalid(ValueError):
    """A fault in our own words."""


class Layout(StrEnum):
    """How the servers stand together."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class RedisTls:
    """Files in PEM: whom to trust (None: the system's authorities), and the certificate shown for mutual TLS."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A URL, or host and port. User and password given here win over those in the URL."""

    url: str | None = None
    host: str = "127.0.0.1"
    port: int = 6379
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    tls: RedisTls | None = None


@dataclass(frozen=True, slots=True)
class RedisPlace:
    """An address, read. `hosts` are those of the server, the sentinels or some nodes of the cluster."""

    layout: Layout
    hosts: tuple[tuple[str, int], ...] = ()
    unix_path: str | None = None
    service: str | None = None
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    tls: RedisTls | None = None


def place_of(address: RedisAddress, *, setting: str = "router.state.url") -> RedisPlace:
    """Read `address`.

    Raises:
        SettingsError: the URL is none of the forms; `param` is `setting`. Nothing of it is echoed.
    """
    if address.url is None:
        hosts = ((address.host, address.port),)
        return RedisPlace(Layout.SINGLE, hosts, **_credentials(address, None, None), tls=address.tls)
    try:
        return _read(address.url, address)
    except ValueError as error:
        # What the library says may quote the URL, and with it a password.
        why = str(error) if isinstance(error, _Invalid) else "it cannot be read"
        raise SettingsError(f"The Redis URL is not valid: {why}.", param=setting) from None


def _read(url: str, address: RedisAddress) -> RedisPlace:
    scheme, separator, rest = url.partition("://")
    secure, layout = scheme.startswith("rediss"), _layout_of(scheme)
    if not separator or layout is None:
        raise _Invalid(f"it begins with {_FORMS}")
    if scheme != "unix" and address.tls is not None:
        secure = True
    parts = urlsplit(f"//{rest}")
    tls = _tls_of(parts.query, address.tls) if secure else None
    if parts.fragment or (parts.query and not secure):
        raise _Invalid("it has a query or a fragment that says nothing here")
    user, _, places = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    credentials = _credentials(address, unquote(name) or None, unquote(password) or None)
    if scheme == "unix":
        if not parts.path:
            raise _Invalid("it names no socket")
        return RedisPlace(layout, unix_path=unquote(parts.path), **credentials)
    default = 26379 if layout is Layout.SENTINEL else 6379
    hosts = tuple(_host_of(each, default) for each in places.split(","))
    if layout is Layout.SINGLE and len(hosts) > 1:
        raise _Invalid("several servers are a Sentinel group or a Cluster: redis+sentinel:// or redis+cluster://")
    steps = [step for step in parts.path.split("/") if step]
    service = unquote(steps.pop(0)) if layout is Layout.SENTINEL and steps else None
    if layout is Layout.SENTINEL and service is None:
        raise _Invalid("after the sentinels it names the master, as in redis+sentinel://a,b,c/mymaster")
    return RedisPlace(layout, hosts, service=service, database=_database_of(steps, layout), **credentials, tls=tls)


def _tls_of(query: str, given: RedisTls | None) -> RedisTls:
    """Files that the URL names as the Redis client spells them; those in the settings win."""
    named = dict(parse_qsl(query, strict_parsing=True)) if query else {}
    files = [named.pop(name, None) for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")]
    if named:
        raise _Invalid("its query may hold ssl_ca_certs, ssl_certfile and ssl_keyfile alone")
    ca, cert, key = (Path(file) if file else None for file in files)
    given = given or RedisTls()
    return RedisTls(given.ca_file or ca, given.cert_file or cert, given.key_file or key)


def _layout_of(scheme: str) -> Layout | None:
    if scheme in ("redis", "rediss", "unix"):
        return Layout.SINGLE
    base, _, kind = scheme.partition("+")
    known = base in ("redis", "rediss") and kind in (Layout.SENTINEL.value, Layout.CLUSTER.value)
    return Layout(kind) if known else None


def _host_of(text: str, default_port: int) -> tuple[str, int]:
    found = _PLACE.fullmatch(text)
    if found is None:
        raise _Invalid("it has a host that is none")
    port = int(found["port"] or default_port)
    if not 1 <= port <= 65535:
        raise _Invalid("it has a port that is none")
    return found["host"] or found["six"], port


def _database_of(steps: list[str], layout: Layout) -> int:
    if len(steps) > 1 or (steps and not (steps[0].isascii() and steps[0].isdigit())):
        raise _Invalid("its path is not the number of a database")
    number = int(steps[0]) if steps else 0
    if layout is Layout.CLUSTER and number:
        raise _Invalid("a Cluster has database 0 alone")
    return number


def _credentials(address: RedisAddress, name: str | None, password: str | None) -> dict[str, Any]:
    return {
        "username": address.username or name,
        "password": address.password or password,
        "sentinel_password": address.sentinel_password,
    }
