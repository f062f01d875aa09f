"""Reads the address of a backend: whom to connect to, and how each request to it begins."""

from __future__ import annotations

import re
from typing import NamedTuple

from yarl import URL

from router.dispatch.wire.errors import Unsendable

_VISIBLE = re.compile(r"[\x21-\x7e]+")
_SCHEMES = frozenset({"http", "https"})


class Origin(NamedTuple):
    """What a connection belongs to: those of one origin are alike."""

    host: str
    port: int
    is_tls: bool


class Destination(NamedTuple):
    """One route of an origin, and the first two lines of a POST to it."""

    origin: Origin
    first_lines: str


def destination_of(url: str) -> Destination:
    """`url` taken apart; names beyond ASCII and unusual characters in the path are written as the network has them.

    Raises:
        Unsendable: it is no address, or more than one: with a user, a query or a fragment.
    """
    try:
        parsed = URL(url)
        host, port = parsed.raw_host, parsed.port
        named = parsed.host_port_subcomponent
    except ValueError:
        raise Unsendable("The backend's address is none.") from None
    if parsed.scheme not in _SCHEMES or not host or not port or not named:
        raise Unsendable("The backend's address is none.")
    if parsed.raw_user is not None or parsed.raw_password is not None or parsed.raw_query_string or parsed.raw_fragment:
        raise Unsendable("The backend's address holds more than a host and a path.")
    if not _VISIBLE.fullmatch(named + parsed.raw_path):
        raise Unsendable("The backend's address holds what no address may.")
    first_lines = f"POST {parsed.raw_path} HTTP/1.1\r\nHost: {named}\r\n"
    return Destination(Origin(host, port, parsed.scheme == "https"), first_lines)
