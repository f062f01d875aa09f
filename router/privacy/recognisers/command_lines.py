"""Passwords as programs are given them: options of command lines, `.netrc`, `.pgpass`, and kept hashes of passwords."""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import Span
from router.privacy.recognisers.credential_values import is_code, is_placeholder
from router.privacy.recognisers.model import Recogniser, Tick, by_pattern
from shared.privacy import PrivacyClass

_QUOTED = r"(?:\"(?P<q1>[^\"\n]{3,128})\"|'(?P<q2>[^'\n]{3,128})'|(?P<q3>[^\s\"'`;|&<>]{3,128}))"
_ARGUMENTS = r"(?:[ \t]+[^\s;|&]{1,128}){0,12}?[ \t]+"
_OPTIONS = (
    # Programs whose short option is a password, with and without a blank behind it.
    (r"(?:mysql(?:dump|admin|import|show|check)?|mariadb(?:-dump|-admin)?|mytop)", r"-p"),
    (
        r"(?:sshpass|(?:docker|podman|az|oc|helm[ \t]+registry)[ \t]+login|mongo(?:sh|dump|restore)?|sqlcmd|bcp"
        r"|7z[ \t]+[ax]|unzip|zip|rar|xfreerdp|smbclient|crackmapexec)",
        r"-[pP](?:[ \t]{1,3})?",
    ),
    (r"(?:redis-cli|valkey-cli)", r"(?:-a|--pass)[ \t]{1,3}"),
    (r"(?:ldap(?:search|modify|add|passwd|whoami))", r"-w[ \t]{1,3}"),
    (
        r"(?:curl|http|https|wget|xh)",
        r"(?:-[uU][ \t]{0,3}|--(?:proxy-)?user[ =]{1,3}|-a[ \t]{1,3})[\"']?[^\s:\"']{1,64}:",
    ),
    (r"openssl", r"-pass(?:in|out|word)?[ \t]{1,3}pass:"),
    (r"net[ \t]+use", r"/user:[^\s]{1,64}[ \t]{1,3}"),
    (r"(?:smbclient|rpcclient|smbmap|psexec)", r"-U[ \t]{0,3}[\"']?[^\s%\"']{1,64}%"),
    (r"htpasswd", r"-[a-zA-Z]*b[a-zA-Z]*[ \t]{1,3}[^\s]{1,128}[ \t]{1,3}[^\s]{1,64}[ \t]{1,3}"),
    (r"(?:[\w./-]{1,64})", r"--(?:[a-z]{1,16}-)?(?:password|passwd|pass|secret|token|api-?key)[ =][ \t]{0,3}"),
)  # fmt: skip
_COMMANDS = tuple(
    re.compile(rf"(?<![A-Za-z0-9_.-])(?i:{program})(?:{_ARGUMENTS})(?:{option}){_QUOTED}", re.MULTILINE)
    for program, option in _OPTIONS
)
_NETRC = re.compile(
    r"(?<![A-Za-z0-9])(?:machine[ \t]+\S{1,253}|default)\s{1,16}(?:login|user)\s{1,8}\S{1,128}\s{1,16}"
    r"(?:account\s{1,8}\S{1,64}\s{1,16})?password\s{1,8}(?P<q3>\S{3,256})"
)
_PGPASS = re.compile(
    r"(?m)^(?:[A-Za-z0-9.\-]{1,253}|\*):(?:[0-9]{2,5}|\*):[A-Za-z0-9_.\-*]{1,64}:[A-Za-z0-9_.\-*]{1,64}:(?P<q3>[^\s:]{4,128})$"
)
_USER_AND_PASSWORD = re.compile(r"(?:\s-u|--user)[ =][\"']?[^\s:\"'$<{]{1,64}:(?P<q3>[^\s\"'@]{3,128})")
_QUOTED_PAIR = re.compile(
    r"(?:-[uU]|--(?:proxy-)?user)[ =]{0,3}(?:\"[^\s:\"]{1,64}:(?P<q1>[^\"\n]{3,128})\""
    r"|'[^\s:']{1,64}:(?P<q2>[^'\n]{3,128})')"
)
_BESIDE_ADDRESS = re.compile(
    r"@[A-Za-z0-9.-]{1,253}\.[A-Za-z]{2,63}:(?P<q3>(?![/~.]|\$\{)[^\s\"'`,;:<>(){}\[\]/]{6,256})(?![^\s\"'`,;:<>(){}\[\]])"
)
"""The lines of a list of logins: an address, and a password that is no path of a remote copy."""
_HASH = re.compile(
    r"(?P<value>\$(?:2[abxy]?\$[0-9]{2}\$[./A-Za-z0-9]{53}|(?:apr1|1|5|6|7|y|gy|sha1)\$[^\s:$]{1,64}\$(?:[^\s:$]{1,64}\$)?[./A-Za-z0-9=+]{22,128}"
    r"|argon2(?:id|i|d)\$[^\s:]{20,256}|scrypt\$[^\s:]{20,256})|pbkdf2[_:$][^\s\"']{40,256}|\{(?:SSHA|SHA|SMD5|CRYPT)(?:256|512)?\}[A-Za-z0-9+/=]{20,128})"
)


def _find(text: str, tick: Tick) -> Iterator[Span]:
    for pattern in (*_COMMANDS, _NETRC, _PGPASS, _USER_AND_PASSWORD, _QUOTED_PAIR):
        for match in pattern.finditer(text):
            tick()
            group = next(name for name in ("q1", "q2", "q3") if match.groupdict().get(name))
            if not is_placeholder(match[group]) and not is_code(match[group]):
                yield match.span(group)


def _find_beside_addresses(text: str, tick: Tick) -> Iterator[Span]:
    for match in _BESIDE_ADDRESS.finditer(text):
        tick()
        value = match["q3"]
        if any(map(str.isdigit, value)) and not value.isdigit() and not is_placeholder(value):
            yield match.span("q3")


RECOGNISERS = (
    Recogniser(
        "password",
        PrivacyClass.SECRET,
        (
            rb"(?i)(?:mysql|mariadb|mytop|sshpass|login|mongo|sqlcmd|bcp|7z|zip|rar|freerdp|smb|redis|valkey|ldap|htpasswd|psexec)[^\n]{0,600}"
            rb"[ \t]-[a-zA-Z]",
            rb"(?i)(?:curl|http|wget|xh)[^\n]{0,600}[ \t]-[uUa-]",
            rb"(?:\s-u|--user)[ =][\"']?[^\s:]{1,64}:",
            rb"-pass(?:in|out|word)? {1,3}pass:",
            rb"/user:",
            rb"--(?:[a-z]{1,16}-)?(?:password|passwd|pass|secret|token|api-?key)[ =]",
            rb"(?:login|user)\s{1,8}\S{1,128}\s{1,16}(?:account|password)\s",
            rb":(?:[0-9]{2,5}|\*):[A-Za-z0-9_.\-*]{1,64}:[A-Za-z0-9_.\-*]{1,64}:",
        ),
        _find,
        score=0.8,
    ),
    Recogniser(
        "password",
        PrivacyClass.SECRET,
        (rb"@[A-Za-z0-9.\-]{1,253}\.[A-Za-z]{2,63}:[^\s/~]{6}",),
        _find_beside_addresses,
        score=0.8,
    ),
    Recogniser(
        "password_hash",
        PrivacyClass.SECRET,
        (rb"\$(?:2[abxy]?|apr1|1|5|6|7|y|gy|sha1|argon2|scrypt)[id]{0,2}\$", rb"pbkdf2", rb"\{(?:SSHA|SHA|SMD5|CRYPT)"),
        by_pattern(_HASH),
    ),
)
