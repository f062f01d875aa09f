"""Turns away what another web page makes a browser send: pages of other sites, and names that lead to this machine.

A router without keys trusts whoever reaches loopback. A page on the web reaches it too, through its visitor's browser:
plainly, which the browser says in `Sec-Fetch-Site` and `Origin`, or under a name of its own that it lets point to
127.0.0.1 (DNS rebinding), which the `Host` header shows.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from aiohttp import web

from shared.errors import Forbidden

_OWN_SITES = (None, "same-origin", "none")


def check_host(request: web.Request, *, asks_for_keys: bool) -> None:
    """Without keys, the name under which the router was reached must be one of this machine.

    Raises:
        Forbidden: it is another.
    """
    if not asks_for_keys and not _is_local(request.headers.get("Host", "")):
        raise Forbidden("A router without keys answers under a name of this machine alone.", code="foreign_host")


def check_origin(request: web.Request, *, asks_for_keys: bool) -> None:
    """`check_host`, and the request must come from the console's own pages or from no page at all.

    Raises:
        Forbidden: it does not.
    """
    check_host(request, asks_for_keys=asks_for_keys)
    origin = request.headers.get("Origin")
    own = origin is None or _netloc_of(origin) == request.headers.get("Host", "")
    if not own or request.headers.get("Sec-Fetch-Site") not in _OWN_SITES:
        raise Forbidden("This was sent by a page of another site.", code="foreign_origin")


def _netloc_of(origin: str) -> str | None:
    """Host and port of an `Origin`; None where it is no URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or ipaddress.ip_address(name).is_loopback
    except ValueError:  # neither a name that is known nor an address
        return False
