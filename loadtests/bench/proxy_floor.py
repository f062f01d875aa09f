"""The least a proxy in this stack can cost: aiohttp server and client on uvloop, bytes in, bytes out, nothing else.

    python -m loadtests.bench.proxy_floor --to http://127.0.0.1:9000 --port 9001

What the router does on top (classify, decide, account) is reported as a ratio to this, measured in the same run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import aiohttp
import typer
from aiohttp import web

from loadtests.serving import announce_and_serve

_BODY_BYTES = 4 * 1024 * 1024
_SESSION = web.AppKey("session", aiohttp.ClientSession)


def build(to: str) -> web.Application:
    """The application that forwards every POST to `to` with the same path."""

    async def forward(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        async with request.app[_SESSION].post(to + request.path, data=body, headers=headers) as upstream:
            response = web.StreamResponse(
                status=upstream.status, headers={"Content-Type": upstream.headers.get("Content-Type", "")}
            )
            await response.prepare(request)
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    async def session(app: web.Application) -> AsyncIterator[None]:
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=timeout, auto_decompress=False
        ) as http:
            app[_SESSION] = http
            yield

    app = web.Application(client_max_size=_BODY_BYTES)
    app.router.add_post("/{path:.*}", forward)
    app.cleanup_ctx.append(session)
    return app


def main(to: Annotated[str, typer.Option(help="Address of the backend.")], port: int = 0) -> None:
    """Serve on 127.0.0.1."""
    announce_and_serve(build(to.rstrip("/")), port)


if __name__ == "__main__":
    typer.run(main)
