"""A backend that costs next to nothing: ready-made bytes, so that what is measured is the thing in front of it.

    python -m loadtests.bench.instant --port 9000 [--tokens 32] [--first-ms 0]

Prints its address once it listens, and serves until SIGTERM or SIGINT.
"""

from __future__ import annotations

import asyncio

import orjson
import typer
from aiohttp import web

from loadtests.serving import announce_and_serve
from shared.fleet import BackendState, CloudCapacity
from shared.testing import answers


def build(*, tokens: int, first_ms: float) -> web.Application:
    """The application; a streamed answer has `tokens` content events, all written at once after `first_ms`."""
    streamed = answers.stream(*[" token"] * tokens).body
    whole = answers.completion(" token" * tokens).body
    capacity = CloudCapacity(model_id=answers.MODEL, state=BackendState.READY, replicas_ready=1, running=0, waiting=0)
    capacity_body = orjson.dumps({"models": [capacity.model_dump(mode="json")]})

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if first_ms > 0:
            await asyncio.sleep(first_ms / 1000)
        if b'"stream":true' not in body:
            return web.Response(body=whole, headers=answers.JSON)
        response = web.StreamResponse(headers=answers.EVENT_STREAM)
        await response.prepare(request)
        await response.write(streamed)
        await response.write_eof()
        return response

    async def capacities(_: web.Request) -> web.Response:
        return web.Response(body=capacity_body, headers=answers.JSON)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/ops/capacity", capacities)
    return app


def main(port: int = 0, tokens: int = 32, first_ms: float = 0.0) -> None:
    """Serve on 127.0.0.1."""
    announce_and_serve(build(tokens=tokens, first_ms=first_ms), port)


if __name__ == "__main__":
    typer.run(main)
