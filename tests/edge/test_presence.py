"""The address that an agent reports: what was said, what leads to the router, and where it would reach nobody."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any

import pytest

from edge.enrolment import Enrolment
from edge.presence import Presence, ends_of_way
from edge.settings import EdgeSettings
from shared.errors import SettingsError
from shared.settings import load
from shared.testing.clock import ManualClock

KEYS = [{"name": "app", "sha256": "0" * 64}]
JOINED = Enrolment(router_url="http://router:8080", backend_id="pi", device_id="0" * 32)


@dataclass
class Network:
    """What the machine would say of the way to a host; None: there is no way."""

    own: str | None = "192.168.1.7"
    other: str = "192.168.1.1"
    asked: list[tuple[str, int]] = field(default_factory=list)

    def find(self, host: str, port: int, family: socket.AddressFamily) -> tuple[str, str]:
        self.asked.append((host, port))
        if self.own is None:
            raise OSError("unreachable")
        return self.own, self.other


def presence(network: Network, joined: Enrolment | None = None, **fields: Any) -> tuple[Presence, list[str]]:
    changes: list[str] = []
    settings = load(EdgeSettings, "edge", **fields)
    found = Presence(
        settings, joined, port=8081, clock=ManualClock(), on_change=lambda: changes.append("change"), find=network.find
    )
    return found, changes


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, "http://127.0.0.1:8081"),
        ({"router": {"url": "http://localhost:8080"}}, "http://127.0.0.1:8081"),
        ({"router": {"url": "http://127.0.0.2:8080"}}, "http://127.0.0.1:8081"),
        ({"host": "192.168.1.9", "keys": KEYS, "router": {"url": "http://router:8080"}}, "http://192.168.1.9:8081"),
        ({"host": "0.0.0.0", "keys": KEYS, "advertise_url": "http://me", "router": {"url": "http://r"}}, "http://me"),
        ({"advertise_url": "http://me:1", "router": {"url": "http://router:8080"}}, "http://me:1"),
        ({"router": {"redis": {"host": "redis"}}}, "http://127.0.0.1:8081"),
    ],
)
def test_what_is_known_is_known_at_once(fields: dict[str, Any], url: str) -> None:
    found, _ = presence(Network(), **fields)
    assert found.identity is not None
    assert found.identity.url == url


@pytest.mark.parametrize(
    ("fields", "joined", "towards"),
    [
        ({"router": {"url": "http://router:8080"}}, None, ("router", 8080)),
        ({"router": {"url": "https://router"}}, None, ("router", 443)),
        ({}, JOINED, ("router", 8080)),
        ({"router": {"redis": {"url": "redis+sentinel://one:1,two:2/main"}}}, None, ("one", 1)),
    ],
)
async def test_on_every_address_it_is_the_one_that_leads_to_the_router(
    fields: dict[str, Any], joined: Enrolment | None, towards: tuple[str, int]
) -> None:
    """FS-01 kind: `0.0.0.0` is nobody's address, and a router that calls it reaches itself."""
    network = Network(own=None)
    found, changes = presence(network, joined, host="0.0.0.0", keys=KEYS, **fields)
    await found.look()
    assert found.identity is None  # nothing is reported
    network.own = "192.168.1.7"
    await found.look()
    assert network.asked == [towards, towards]
    assert found.identity is not None
    assert found.identity.url == "http://192.168.1.7:8081"
    for own, url in (
        ("10.0.0.7", "http://10.0.0.7:8081"),
        (None, "http://10.0.0.7:8081"),
        ("fd00::7", "http://[fd00::7]:8081"),
    ):
        network.own = own
        await found.look()
        assert found.identity.url == url
    assert len(changes) == 3
    assert found.identity.instance == found.local.instance


@pytest.mark.parametrize("joined", [None, JOINED])
def test_a_router_elsewhere_cannot_reach_loopback(joined: Enrolment | None) -> None:
    fields: dict[str, Any] = {} if joined else {"router": {"url": "http://router:8080"}}
    for network in (Network(), Network(own=None)):
        with pytest.raises(SettingsError) as refused:
            presence(network, joined, **fields)
        assert refused.value.param == "edge.advertise_url"
    assert presence(Network(own="192.168.1.1"), joined, **fields)[0].identity is not None  # it is this very machine


@pytest.mark.parametrize("host", ["::", "::0", "0:0:0:0:0:0:0:0", "0", "0.0"])
async def test_every_way_to_write_all_addresses_is_known(host: str) -> None:
    """FS-01 siblings: none of them is an address that a router could call."""
    network = Network()
    found, _ = presence(network, host=host, keys=KEYS, router={"url": "http://router:8080"})
    assert found.identity is None
    await found.look()
    assert found.identity is not None
    assert found.identity.url == "http://192.168.1.7:8081"


@pytest.mark.parametrize(
    "url",
    ["http://router:99999", "http://router:0", "http://[::1", "http://a..b", "http://:80", f"http://{'a' * 64}.de"],
)
def test_a_router_that_cannot_be_named_is_refused_before_anything_starts(url: str) -> None:
    for fields in ({"router": {"url": url}}, {"advertise_url": url}):
        with pytest.raises(SettingsError, match="must name a server") as refused:
            load(EdgeSettings, "edge", **fields)
        assert refused.value.param in ("edge.router.url", "edge.advertise_url")


def test_an_address_of_one_link_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """fe80::1%eth0 names an interface of ours; and a name that cannot be asked for is no fault of the program."""

    class Linked(socket.socket):
        def connect(self, address: Any) -> None:
            """Nowhere."""

        def getsockname(self) -> Any:
            return "fe80::1%eth0", 1, 0, 2

        def getpeername(self) -> Any:
            return "fe80::2%eth0", 1, 0, 2

    monkeypatch.setattr(socket, "socket", Linked)
    for host in ("::1", "a..b", "a" * 64):
        with pytest.raises(OSError):
            ends_of_way(host, 9, socket.AF_UNSPEC)


def test_the_machine_says_which_address_leads_there() -> None:
    assert ends_of_way("127.0.0.1", 9, socket.AF_UNSPEC) == ("127.0.0.1", "127.0.0.1")
    with pytest.raises(OSError):
        ends_of_way("no.such.host.invalid", 9, socket.AF_UNSPEC)
