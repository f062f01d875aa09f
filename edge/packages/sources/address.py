"""Decides what kind of source the operator typed, and where its bytes are: the table of remote addresses.

    https://host/path/model.gguf[#sha256=<64 hex digits>]      one file; of a split model any part stands for all
    https://host/path/genai_config.json[#sha256=…]             the ONNX package beside that file
    hf:owner/name[@revision]/path/…[#sha256=…]                 the same on the repository server of the settings

What is pinned is the digest of the package, which of a single file is its hash.
Everything else is a name, a path or a channel; see `edge.packages.library`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from edge.packages.formats.onnx_config import CONFIG_FILE
from edge.packages.gguf import MAGIC
from edge.packages.gguf_split import part_name
from shared.errors import InvalidRequest, SettingsError

_PIN = re.compile(r"(?P<place>[^#]*)(#sha256=(?P<sha256>[0-9a-fA-F]{64}))?")
_HUB = re.compile(
    r"hf:(?P<owner>[A-Za-z0-9][A-Za-z0-9._-]{0,95})/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,95})"
    r"(@(?P<revision>[A-Za-z0-9][A-Za-z0-9._-]{0,127}))?"
    r"/(?P<file>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,127}){0,7})"
)
_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_DEFAULT_REVISION = "main"


@dataclass(frozen=True, slots=True)
class RemoteRules:
    """What may be fetched from where. `hub_url` is the base URL that `hf:` paths are below; None: there is none."""

    hub_url: str | None = None
    allow_http: bool = False
    limit_bytes: int = 64 << 30


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file on a server. `shown` is its address without what may be secret (a query).

    `magic` is what its first bytes must be.
    """

    url: str
    shown: str
    file_name: str
    sha256: str | None
    magic: bytes = MAGIC

    @property
    def package_name(self) -> str:
        """The name to install it under: that of the file, of the split file, or of the folder around a package."""
        named = part_name(self.file_name)
        if named is not None:
            stem = named.stem
        elif self.file_name == CONFIG_FILE:
            stem = self.shown.rpartition("/")[0].rpartition("/")[2].partition("@")[0]
        else:
            stem = self.file_name.rpartition(".")[0]
        return _NAME.sub("-", stem).strip("-._")[:64].lower() or "model"

    def sibling(self, name: str) -> RemoteFile:
        """The file `name` in the same folder."""
        parts = urlsplit(self.url)
        path = f"{parts.path.rpartition('/')[0]}/{quote(name)}"
        shown = f"{self.shown.rpartition('/')[0]}/{name}"
        return replace(self, url=urlunsplit(parts._replace(path=path)), shown=shown, file_name=name)


def remote_file(source: str, rules: RemoteRules) -> RemoteFile | None:
    """The file that `source` names on a server; None when it is another kind of source.

    Raises:
        InvalidRequest: it begins like an address and is none, or plain HTTP is not allowed to that host.
        SettingsError: no repository server is set.
    """
    reader = next((reader for prefix, reader in _READERS.items() if source.startswith(prefix)), None)
    if reader is None or _is_channel(source):
        return None
    pinned = _PIN.fullmatch(source)
    if pinned is None:
        raise InvalidRequest("After # stands sha256= and 64 hexadecimal digits.", param="source")
    sha256 = pinned["sha256"]
    url, shown = reader(pinned["place"], rules)
    check_url(url, rules)
    file_name = unquote(urlsplit(url).path).rpartition("/")[2]
    if not file_name.endswith(".gguf") and file_name != CONFIG_FILE:
        raise InvalidRequest(
            f"What can be pulled from a server are a GGUF file, any part of a split one, and an ONNX package by its "
            f"{CONFIG_FILE}; other packages come by channels.",
            param="source",
        )
    return RemoteFile(url, shown, file_name, sha256.lower() if sha256 else None)


def check_url(url: str, rules: RemoteRules) -> None:
    """Refuse addresses that bytes must not come from: also asked for each redirection.

    Raises:
        InvalidRequest: it is no http(s) URL, carries a user name, or is plain HTTP to another machine.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest("The address is no http(s) URL.", param="source")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest("An address with a user name or password is not accepted.", param="source")
    if parts.scheme == "http" and not rules.allow_http and not _is_loopback(parts.hostname):
        raise InvalidRequest(
            "Plain HTTP to another machine is not allowed; use https, or set edge.sources.allow_http.", param="source"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_channel(source: str) -> bool:
    """`URL#NAME` is a release in a channel; a pin always has an equals sign, which no name has."""
    fragment = source.partition("#")[2]
    return bool(fragment) and "=" not in fragment


def _plain_url(place: str, rules: RemoteRules) -> tuple[str, str]:
    del rules
    return place, place.partition("?")[0]


def _hub_path(place: str, rules: RemoteRules) -> tuple[str, str]:
    found = _HUB.fullmatch(place)
    if found is None or ".." in place:
        raise InvalidRequest(
            f"A repository path is hf:OWNER/NAME[@REVISION]/FILE, where FILE ends with .gguf or is {CONFIG_FILE}.",
            param="source",
        )
    if rules.hub_url is None:
        raise SettingsError("No repository server is set (edge.sources.hub_url).", param="edge.sources.hub_url")
    revision = found["revision"] or _DEFAULT_REVISION
    path = quote(f"{found['owner']}/{found['name']}/resolve/{revision}/{found['file']}")
    return f"{rules.hub_url.rstrip('/')}/{path}", place


_READERS: Mapping[str, Callable[[str, RemoteRules], tuple[str, str]]] = {
    "http://": _plain_url,
    "https://": _plain_url,
    "hf:": _hub_path,
}
