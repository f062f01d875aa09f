"""Decides which pages in a browser may call Ollama's API: those of this device and of programs on it, as with Ollama.

A page elsewhere is refused before anything is read. Its browser would send a simple request without asking, and to a
name that the page lets point here whatever the page likes; an agent on loopback has no key to keep it out.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from edge.service.ollama.errors import PREFIX
from shared.errors import Forbidden
from shared.http.errors import Handler

_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_PROGRAMS = frozenset(
    {"app", "tauri", "vscode-webview", "vscode-file", "chrome-extension", "moz-extension", "safari-web-extension"}
)
"""Schemes of pages that come with a program or an extension which the user has installed."""
_REMEMBERED_S = 600


def is_near(origin: str) -> bool:
    """Whether an `Origin` header names a page of this device, or of a program; it can be said again in a header."""
    if not _is_plain(origin):
        return False
    try:
        parts = urlsplit(origin)
        return parts.scheme in _PROGRAMS or (parts.scheme in ("http", "https") and parts.hostname in _HOSTS)
    except ValueError:
        return False


def middleware() -> Middleware:
    """Middleware that refuses pages elsewhere and answers what a browser asks before a page may send JSON."""

    @web.middleware
    async def handle(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = _origin(request)
        if origin is None:
            return await handler(request)
        if not is_near(origin):
            raise Forbidden("Pages of another device may not call this API.", param="origin", code="foreign_origin")
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return web.Response(status=204)
        return await handler(request)

    return handle


async def allow(request: web.Request, response: web.StreamResponse) -> None:
    """Add to an answer, before it goes out, that the page which asked may read it."""
    origin = _origin(request)
    if origin is None or not is_near(origin):
        return
    response.headers["Access-Control-Allow-Origin"] = origin
    response.headers["Vary"] = "Origin"
    if request.method == "OPTIONS":
        response.headers["Access-Control-Allow-Methods"] = "GET, HEAD, POST"
        wanted = request.headers.get("Access-Control-Request-Headers", "")
        response.headers["Access-Control-Allow-Headers"] = wanted if _is_plain(wanted) else ""
        response.headers["Access-Control-Max-Age"] = str(_REMEMBERED_S)


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()


def _origin(request: web.Request) -> str | None:
    """The page's origin, where a browser sends a request to this API for one."""
    return request.headers.get("Origin") if request.path.startswith(PREFIX) else None
