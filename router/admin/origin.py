"""Turns away what another web page makes a browser send: pages of other sites, and names that lead to this machine.

A router without keys trusts whoever reaches loopback. A page on the web reaches it too, through its visitor's browser:
plainly, which the browser says in `Sec-Fetch-Site` and `Origin`, or under a name of its own that it lets point to
127.0.0.1 (DNS rebinding), which the `Host` header shows.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from shared.errors import Forbidden
from shared.http.hosts import check_near

_OWN_SITES = (None, "same-origin", "none")


def check_origin(request: web.Request, *, asks_for_keys: bool) -> None:
    """The request must come from the console's own pages or from no page at all; without keys, under a name of this
    machine.

    Raises:
        Forbidden: it does not.
    """
    if not asks_for_keys:
        check_near(request.headers)
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
