"""Passwords inside addresses and connection strings: `scheme://user:password@host`, `Server=…;Password=…`, DSNs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick
from shared.privacy import PrivacyClass

_URL = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.\-]{1,30}://(?P<user>[^\s:/@\"'<>{}$]{0,128}):"
    r"(?P<password>[^\s\"'<>/]{1,256}|\$?\{{1,2}[^\s{}]{1,64}\}{1,2}|<[^<>\s]{1,64}>)@(?P<host>[A-Za-z0-9\[_][A-Za-z0-9.\-]{0,255})"
)
_PARTED = re.compile(
    r"(?i)(?:server|host|data source|endpoint)[ ]?=[^;\n]{1,256};(?:[^;\n=]{1,64}=[^;\n]{0,256};){0,12}"
    r"[ ]?(?:password|pwd)[ ]?=[ ]?(?P<password>[^;\s\"']{3,256})"
)
_DSN = re.compile(
    r"(?<![A-Za-z0-9/:])(?P<user>[A-Za-z0-9_.\-]{1,64}):(?P<password>[^\s@/\"'<>]{3,128})@(?:tcp|unix|udp)(?P<host>)\("
)
_ORACLE = re.compile(r"(?i)(?:thin|oci8?):(?P<user>[A-Za-z0-9_]{1,64})/(?P<password>[^\s@/\"'<>]{3,128})@(?P<host>)")
_SIGNED_URL = re.compile(
    r"[?&](?:sig|signature|x-amz-signature|x-goog-signature)=(?P<password>[A-Za-z0-9%+/_\-]{32,512}={0,2})",
    re.IGNORECASE,
)
_BLANK = re.compile(
    r"(?i)(?:\*+|x+|\.+|your.*|my.?password|example|change.?me|\$.{0,2}\{.*|\$\(.*|\$[A-Za-z_]+|%[A-Za-z_]+%?|%s"
    r"|\{\{?[\w .]*\}?\}|<.*|\[.*\])"
)
"""Says where a password would stand."""
_MODEL_WORD = re.compile(r"(?i)(?:pass(?:word|wd)?|pwd|secret|token|pw)[0-9]?")
_MODEL_USER = re.compile(r"(?i)user(?:name|id)?|login|me|name|u|<.*")
_MODEL_HOST = re.compile(
    r"(?i)localhost|host(?:name)?|server(?:name)?|db|database|address|(?:127|10)\..*|example(?:\.(?:com|org|net))?"
    r"|.*\.local(?:host)?|your.*|my[-.]?(?:host|server|db)?|domain(?:\.com)?|proxy(?:\.com)?"
)
"""Users and hosts of documentation. `secret` is only a picture of a password where one of them stands beside it."""


def _find(text: str, tick: Tick) -> Iterator[Span]:
    for pattern in (_URL, _PARTED, _DSN, _ORACLE, _SIGNED_URL):
        for match in pattern.finditer(text):
            tick()
            if not _is_model(match):
                yield match.span("password")


def _is_model(match: re.Match[str]) -> bool:
    """Whether this is how an address is written, and not an address."""
    said = match.groupdict()
    if _BLANK.fullmatch(said["password"]):
        return True
    if not _MODEL_WORD.fullmatch(said["password"]) or said.get("host") is None:
        return False
    return bool(_MODEL_USER.fullmatch(said["user"]) or _MODEL_HOST.fullmatch(said["host"]))


RECOGNISERS = (
    Recogniser(
        "connection_string",
        PrivacyClass.SECRET,
        (
            rb"://[^\s/@]{0,200}:[^\s/]{1,256}@",
            rb"(?i)(?:password|pwd)[ ]?=[ ]?[^;\s]{3}",
            rb"@(?:tcp|unix|udp)\(",
            rb"(?i)(?:thin|oci8?):[a-z0-9_]{1,64}/",
            rb"(?i)(?:sig|signature)=[A-Za-z0-9%+/_\-]{32}",
        ),
        _find,
    ),
)
