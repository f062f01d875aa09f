"""The agent's OpenAPI document describes the routes there are and no other, and names everything that it refers to."""

from __future__ import annotations

import re

import orjson

from edge.service.ollama.surface import MANAGED
from edge.service.openapi import ROUTE, document
from shared import keys
from tests.edge.service.fakes import FakeEngine
from tests.edge.service.harness import Running, running_agent


async def test_every_route_is_described_and_no_other(running: Running) -> None:
    described = {(method.upper(), path) for path, item in document()["paths"].items() for method in item}
    served = {
        (route.method, route.resource.canonical)
        for route in running.agent.web.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    # Whatever the method, these are refused; clients send POST.
    managed = {f"/api/{name}" for name in MANAGED}
    assert {("*", path) for path in managed} <= served
    assert described == {("POST" if path in managed else method, path) for method, path in served}


def test_every_reference_leads_somewhere_and_two_apis_keep_their_names_apart() -> None:
    schemas = document()["components"]["schemas"]
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', orjson.dumps(document()).decode()))
    assert named <= set(schemas)
    assert schemas["ToolCall"] != schemas["OllamaToolCall"]
    assert "options" in schemas["OllamaChatBody"]["properties"]


async def test_the_document_is_served_to_who_has_a_key(running: Running, engine: FakeEngine) -> None:
    async with running.session.get(running.url + ROUTE) as response:
        assert await response.json() == document()
    known = [{"name": "user", "sha256": keys.hashed("isk-user")}]
    async with running_agent(engine, keys=known) as closed, closed.session.get(closed.url + ROUTE) as response:
        assert response.status == 401
