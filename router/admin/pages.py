"""Serves the console's pages: files of this package, under a policy that lets them reach nothing but this router."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

from router.http.access import Doorkeeper
from shared.errors import NotFound
from shared.http.hosts import check_near

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}


class Pages:
    """Handlers of /console. The files are read once, at the first request for any of them."""

    def __init__(self, doorkeeper: Doorkeeper) -> None:
        self._doorkeeper = doorkeeper
        self._files: dict[str, tuple[bytes, str, str]] | None = None

    async def root(self, request: web.Request) -> web.Response:
        """Relative addresses of the page need the slash."""
        if not self._doorkeeper.asks:
            check_near(request.headers)
        return web.Response(status=308, headers={**HEADERS, "Location": "/console/"})

    async def file(self, request: web.Request) -> web.Response:
        """One file by its path below the folder; no other path leads anywhere. No key is needed: they hold no data."""
        if not self._doorkeeper.asks:
            check_near(request.headers)
        if self._files is None:
            self._files = dict(_read(files("router.admin") / "console", ""))
        found = self._files.get(request.match_info["path"] or "index.html")
        if found is None:
            raise NotFound("The console has no such page.", code="unknown_route")
        body, kind, tag = found
        headers = {**HEADERS, "ETag": tag}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, headers={**headers, "Content-Type": kind})


def _read(folder: Traversable, prefix: str) -> list[tuple[str, tuple[bytes, str, str]]]:
    found = []
    for each in folder.iterdir():
        name = prefix + each.name
        if each.is_dir():
            found += _read(each, name + "/")
            continue
        kind = next((kind for ending, kind in _TYPES.items() if name.endswith(ending)), "text/plain; charset=utf-8")
        body = each.read_bytes()
        found.append((name, (body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')))
    return found
