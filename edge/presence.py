"""Decides under which name, and at which address, an agent is known to routers.

An agent that listens on every address of its machine is reached at the one that leads to the router. That is found
without a packet, by connecting a datagram socket (POSIX: it chooses the local address), and looked up again while the
agent runs, since a device changes its network. Until it is known nothing is reported: nobody could reach it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from edge.enrolment import Enrolment, router_url_of
from edge.service.heartbeat import Identity
from edge.settings import EdgeSettings
from shared import logs
from shared.clock import Clock
from shared.errors import SettingsError
from shared.state.address import place_of

_LOOK_S = 30.0
_PORTS = {"http": 80, "https": 443}
_Place = tuple[str, int]
Find = Callable[[str, int, socket.AddressFamily], tuple[str, str]]
"""Gives the addresses of both ends of a way to host and port; raises OSError where there is none."""


def ends_of_way(host: str, port: int, family: socket.AddressFamily) -> tuple[str, str]:
    """Our address and the other's, as the machine would choose them now.

    Raises:
        OSError: the name has no address, or no network leads there.
    """
    failure = OSError("no address")
    try:
        places = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)
    except UnicodeError:
        raise failure from None  # no name that could be asked for
    for found, kind, _, _, place in places:
        try:
            with socket.socket(found, kind) as probe:
                probe.connect(place)
                own, other = probe.getsockname()[0], probe.getpeername()[0]
        except OSError as error:
            failure = error
            continue
        if "%" not in own:  # an address of one link says nothing to whoever reads it elsewhere
            return own, other
    raise failure


class Presence:
    """What an agent says of itself in every report."""

    def __init__(
        self,
        settings: EdgeSettings,
        joined: Enrolment | None,
        *,
        port: int,
        clock: Clock,
        on_change: Callable[[], None],
        find: Find = ends_of_way,
    ) -> None:
        """`port` is the one that was taken.

        Raises:
            SettingsError: the router is on another machine, and this agent listens on loopback alone.
        """
        self._port = port
        self._clock = clock
        self._on_change = on_change
        self._find = find
        self._log = logs.get("presence")
        self._told = False
        self.local = Identity(
            # The name that was joined under stays, whatever the host is called since.
            backend_id=settings.backend_id or (joined.backend_id if joined is not None else settings.fleet_id()),
            instance=secrets.token_hex(8),
            url=settings.advertise_url or _url(settings.host, port),
            zone=settings.zone,
        )
        """As the agent is known on its own machine."""
        self._family = _family_of_all(settings.host)
        self._towards = None if settings.advertise_url else self._way_to_routers(settings, joined)
        self.identity: Identity | None = None if self._towards is not None else self.local
        """As routers are told; None: nobody can say yet where they would reach it."""

    async def run(self) -> None:
        """Follow the network, until cancelled or if there is nothing to follow."""
        while self._towards is not None:
            await self.look()
            await self._clock.sleep(_LOOK_S)

    async def look(self) -> None:
        """Find the address now; without a network the last one stays."""
        if self._towards is None or self._family is None:
            return
        try:
            own, _ = await asyncio.to_thread(self._find, *self._towards, self._family)
        except OSError:
            if self.identity is None and not self._told:
                self._told = True
                self._log.warning("address_unknown", help="No network leads to the router; see edge.advertise_url.")
            return
        url = _url(own, self._port)
        if self.identity is None or self.identity.url != url:
            self.identity = replace(self.local, url=url)
            self._log.info("address_known", url=url)
            self._on_change()

    def _way_to_routers(self, settings: EdgeSettings, joined: Enrolment | None) -> _Place | None:
        """Where the way to routers leads, if the address that it begins at has to be found."""
        redis, url = settings.router.redis, router_url_of(settings, joined)
        if redis is not None:
            hosts = place_of(redis.address("edge.router.redis"), setting="edge.router.redis.url").hosts
            return hosts[0] if hosts and self._family is not None else None
        if url is None:
            return None
        parts = urlsplit(url)
        place = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        if self._family is not None:
            return place
        if _is_loopback(settings.host) and not self._is_here(place):
            raise SettingsError(
                f"The router at {place[0]} cannot reach this agent on {settings.host}. Set edge.host to an address of "
                "this machine (0.0.0.0 for all of them) and edge.keys, or edge.advertise_url to where it is reached.",
                param="edge.advertise_url",
            )
        return None

    def _is_here(self, place: _Place) -> bool:
        """Whether a router is on this machine; one that is not found now is not."""
        if _is_loopback(place[0]):
            return True
        try:
            own, other = self._find(*place, socket.AF_UNSPEC)
        except OSError:
            return False
        return own == other


def _family_of_all(host: str) -> socket.AddressFamily | None:
    """The addresses among which the way is looked for, of an agent that listens on all of them; None: it does not."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(host))  # the short forms that binding takes, such as 0
        except OSError:
            return None
    if not address.is_unspecified:
        return None
    return socket.AF_INET if address.version == 4 else socket.AF_UNSPEC


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
