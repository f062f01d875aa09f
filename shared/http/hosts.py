"""What a process without keys asks of its callers: that no page of the web made a browser call it.

It trusts whoever reaches loopback, and such a page reaches that too, through its visitor's browser: plainly, which the
`Origin` header shows, or under a name of its own that it lets point to 127.0.0.1 (DNS rebinding), which the `Host`
header shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from shared.errors import Forbidden

_PRIVATE = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z0-9_-]+\.(?:localhost|local|internal|test)|[a-z0-9_-]+")
"""Names of one machine or network: RFC 6761, 6762, and `.internal`, which no registry gives away."""


def check_near(headers: Mapping[str, str]) -> None:
    """The caller must be a program, or a page of this machine, and must ask for no name of the public DNS.

    Raises:
        Forbidden: it is a page of another site (`foreign_origin`), or asks for another host (`foreign_host`).
    """
    host = headers.get("Host")
    if host and not is_private_name(host):  # who names none is no browser
        raise Forbidden(
            "Without keys this answers under an address or a private name alone, such as localhost.",
            code="foreign_host",
        )
    origin = headers.get("Origin")
    if origin is not None and not _is_near(origin):
        raise Forbidden("Without keys this answers no page of another site.", code="foreign_origin")


@lru_cache(maxsize=64)
def is_private_name(host: str) -> bool:
    """Whether nobody can let a `Host` (perhaps with a port) point here from afar: it is an address, or a name outside
    the public DNS, as one without a dot is."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    return _is_address(name) or bool(_PRIVATE.fullmatch(name))


@lru_cache(maxsize=64)
def _is_near(origin: str) -> bool:
    """Whether an `Origin` is a page of this machine, or of a program or extension that its user has installed."""
    scheme, separator, _ = origin.partition("://")
    if scheme not in ("http", "https"):
        return bool(separator) and scheme.isascii()
    try:
        name = urlsplit(origin).hostname or ""
    except ValueError:
        return False
    return name == "localhost" or name.endswith(".localhost") or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
