"""Decides how a command reaches its router: at which address, with which key, and over which certificates."""

from __future__ import annotations

import ssl
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from typing import NamedTuple

from router.settings import RouterSettings
from shared.http.tls import ClientTls
from shared.local_keys import local_key
from shared.secret_files import secret_in
from shared.settings import load

_SETTING = "router.client"


class Reach(NamedTuple):
    """A router's address without a slash at its end, the key for it, and how its TLS is spoken (None: no TLS)."""

    base_url: str
    key: str | None
    tls: ssl.SSLContext | None


def reach(url: str | None, key: str | None, config: Path | None) -> Reach:
    """The router that the options mean: the one at `url`, else that of the settings. Without a key of the options or
    the settings it is the one that a router of this home has left for its commands.

    Raises:
        SettingsError: a file of `router.client` cannot be used.
    """
    settings = load(RouterSettings, "router", config)
    client, own_url = settings.client, settings.base_url()
    base_url = (url or own_url).rstrip("/")
    # What the settings hold is meant for their own router, and for no address that somebody else names.
    is_own = base_url.removesuffix("/v1") == own_url
    given = key or (secret_in(client.api_key_file, f"{_SETTING}.api_key_file") if is_own else None)
    tls = None
    if base_url.startswith("https://"):
        tls = ClientTls(client.files(), setting=_SETTING).context
    return Reach(base_url, given or local_key(base_url, "commands"), tls)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A key must not follow to another address."""

    def redirect_request(self, *_: object) -> None:
        return None


def opened(request: urllib.request.Request, *, timeout_s: float, tls: ssl.SSLContext | None) -> HTTPResponse:
    """The answer to `request`, straight from where it is sent: neither a proxy nor a redirect gets the key.

    Raises:
        urllib.error.HTTPError: the answer is no success. OSError: nobody answers.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirects()]
    if tls is not None:
        handlers.append(urllib.request.HTTPSHandler(context=tls))
    response: HTTPResponse = urllib.request.build_opener(*handlers).open(request, timeout=timeout_s)
    return response


def unanswered(base_url: str, error: Exception) -> str:
    """Why there was no answer, in words for people."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"The certificate of {base_url} is not trusted: set {_SETTING}.ca_file."
    if isinstance(reason, ssl.SSLError):
        return f"No TLS with {base_url}: it may want a certificate, which {_SETTING}.cert_file names."
    return f"No router answers at {base_url}."
