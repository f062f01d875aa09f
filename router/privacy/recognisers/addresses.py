"""Network and hardware addresses that lead to a person's line or device: IPv4, IPv6 and MAC addresses.

An address that everyone has (private networks, loopback, masks, broadcast) leads to nobody, nor does one of the big
public resolvers. Blocks kept for documentation stand for real addresses and count. Four numbers with points are also
a version: words and neighbours tell.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick
from shared.privacy import PrivacyClass

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_V4 = re.compile(rf"(?<![0-9A-Za-z_.\-])(?<![A-Za-z]/)(?:{_OCTET}\.){{3}}{_OCTET}(?![0-9A-Za-z_]|\.[0-9]|-[0-9A-Za-z])")
_V6 = re.compile(
    r"(?<![0-9A-Za-z_:.])(?=[0-9A-Fa-f:]{3})[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}"
    r"(?:(?:\.[0-9]{1,3}){3})?(?![0-9A-Za-z_:])"
)
_V4_PARTED = re.compile(rf"(?<![0-9A-Za-z.\]])(?:{_OCTET}(?:\.|\[\.\]|\[dot\])){{3}}{_OCTET}(?![0-9A-Za-z.\[])")
"""Written so that no mail program makes a link of it: `203[.]0[.]113[.]7`."""
_MAC = re.compile(r"(?<![0-9A-Za-z:\-])[0-9A-Fa-f]{2}([:\-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?![0-9A-Za-z:\-])")
_MAC_OF_THREE = re.compile(
    r"(?<![0-9A-Za-z.])(?=[0-9.]*[A-Fa-f])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![0-9A-Za-z]|\.[0-9A-Za-z])"
)
_VERSION = re.compile(
    r"(?i)(?:\bv(?:er(?:sion)?)?\.?|\brelease|\bbuild|\bupgrade\w*(?: to| from)?|\bsection|\bchapter|\b§|\bclause"
    r"|\brev(?:ision)?|版本|章|节|節|\boid)[ :=\-v]{0,3}\Z|[@=~^<>]{1,2} ?\Z"
)
_ADDRESS_NAMED = re.compile(
    r"(?i)\b(?:ip|host|addr\w*|client|server|remote|from|src|dst)[\w-]{0,12}[ \"']{0,2}[=:] ?[\"']?\Z"
)
_PARTING = re.compile(r"\[(?:\.|dot)\]")
_EVERYONES = frozenset(
    {"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9", "208.67.222.222", "208.67.220.220", "1.2.3.4", "1.2.3.0"}
)  # fmt: skip
"""Public resolvers, and the example that stands for none."""
_DOCUMENTATION = tuple(
    map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"))
)
_NEAR_CHARS = 24


def _leads_to_someone(written: str) -> bool:
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return False
    if written in _EVERYONES or address.is_multicast:
        return False
    return address.is_global or any(address in block for block in _DOCUMENTATION if block.version == address.version)


def find_ips(text: str, tick: Tick) -> Iterator[Span]:
    """IP addresses in `text`."""
    for match in _V4.finditer(text):
        tick()
        before = text[max(0, match.start() - _NEAR_CHARS) : match.start()]
        if _VERSION.search(before) and not _ADDRESS_NAMED.search(before):
            continue
        if _leads_to_someone(match.group()):
            yield match.span()
    for match in _V4_PARTED.finditer(text) if "]" in text else ():
        tick()
        if "[" in match.group() and _leads_to_someone(_PARTING.sub(".", match.group())):
            yield match.span()
    for match in _V6.finditer(text):
        tick()
        if _is_v6(match.group()) and _leads_to_someone(match.group()):
            yield match.span()


def _is_v6(written: str) -> bool:
    """Whether colons and digits can be an address rather than a time, a path in C++ or a ratio."""
    return written.count(":") == 7 or ("::" in written and len(written) >= 6)


def find_macs(text: str, tick: Tick) -> Iterator[Span]:
    """Hardware addresses in `text`; none that all devices share."""
    for match in (*_MAC.finditer(text), *_MAC_OF_THREE.finditer(text)):
        tick()
        digits = re.sub(r"[:\-.]", "", match.group()).lower()
        if len(set(digits)) > 2 and not int(digits[1], 16) & 1:
            yield match.span()


RECOGNISERS = (
    Recogniser(
        "ip_address",
        PrivacyClass.PERSONAL,
        (
            rb"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}",
            rb"[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]",
            rb"[0-9]\[(?:\.|dot)\][0-9]",
        ),
        find_ips,
        score=0.9,
    ),
    Recogniser(
        "mac_address",
        PrivacyClass.PERSONAL,
        (rb"(?:[0-9A-Fa-f]{2}[:\-]){5}[0-9A-Fa-f]{2}", rb"[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}"),
        find_macs,
        score=0.8,
    ),
)
