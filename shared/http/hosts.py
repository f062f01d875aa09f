"""What a process without keys asks of its callers: that no page of the web made a browser call it.

It trusts whoever reaches loopback, and such a page reaches that too, through its visitor's browser: plainly, which the
`Origin` header shows, or under a name of its own that it lets point to 127.0.0.1 (DNS rebinding), which the `Host`
header shows.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from shared.errors import Forbidden


def check_near(headers: Mapping[str, str]) -> None:
    """The caller must be a program, or a page of this machine, and must name this machine.

    Raises:
        Forbidden: it is a page of another site (`foreign_origin`), or asks for another host (`foreign_host`).
    """
    host = headers.get("Host")
    if host and not is_of_this_machine(host):  # who names none is no browser
        raise Forbidden(
            "Without keys this answers under a name of this machine alone, such as localhost.", code="foreign_host"
        )
    origin = headers.get("Origin")
    if origin is not None and not _is_near(origin):
        raise Forbidden("Without keys this answers no page of another site.", code="foreign_origin")


@lru_cache(maxsize=64)
def is_of_this_machine(host: str) -> bool:
    """Whether a host (a name or an address, perhaps with a port) is loopback."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or ipaddress.ip_address(name).is_loopback
    except ValueError:  # neither a name that is known nor an address
        return False


@lru_cache(maxsize=64)
def _is_near(origin: str) -> bool:
    """Whether an `Origin` is a page of this machine, or of a program or extension that its user has installed."""
    scheme, separator, host = origin.partition("://")
    return bool(separator) and (is_of_this_machine(host) if scheme in ("http", "https") else scheme.isascii())
