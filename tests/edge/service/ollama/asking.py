"""Asks an agent under test the way that Ollama's clients do."""

from __future__ import annotations

from typing import Any

import orjson

from tests.edge.service.fakes import MODEL
from tests.edge.service.harness import Running

HELLO = [{"role": "user", "content": "hello"}]
CHAT: dict[str, Any] = {"model": MODEL, "messages": HELLO}


def post(running: Running, route: str, body: Any = None, **options: Any) -> Any:
    """A request that is on its way."""
    return running.session.post(f"{running.url}{route}", json=body, **options)


async def said(running: Running, route: str, body: Any) -> tuple[int, Any]:
    """Status and body of an answer that is one object."""
    async with post(running, route, body) as response:
        return response.status, orjson.loads(await response.read())


async def lines_of(running: Running, route: str, body: Any) -> list[Any]:
    """The objects of a streamed answer."""
    async with post(running, route, body) as response:
        assert response.status == 200
        assert response.content_type == "application/x-ndjson"
        return [orjson.loads(line) for line in (await response.read()).splitlines()]
