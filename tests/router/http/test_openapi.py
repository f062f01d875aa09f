"""The OpenAPI document describes the routes there are, and nothing that fits it or misses it makes the router fail."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from router.http.openapi import ROUTE, document
from shared.keys import Scope, hashed
from shared.testing import answers
from shared.testing.answers import Answer
from shared.testing.upstream import Exchange, Upstream
from tests.router.conftest import StartRouter

schemathesis = pytest.importorskip("schemathesis")

EXAMPLES = 3
KEY = "isk-of-every-scope"
ENDLESS = "/admin/v1/events"
"""The one route that streams for ever: it is asked by a test of its own."""


async def test_every_route_is_described_and_no_other(start_router: StartRouter) -> None:
    router = await start_router()
    described = {(method.upper(), path) for path, item in document()["paths"].items() for method in item}
    served = {
        (route.method, route.resource.canonical)
        for route in router.router.application.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert described == served


async def test_the_document_is_served_to_who_has_a_key(start_router: StartRouter) -> None:
    key = {"name": "a", "sha256": "a" * 64}
    async with aiohttp.ClientSession() as http:
        open_router, closed = await start_router(), await start_router(keys=[key])
        async with http.get(open_router.url + ROUTE) as response:
            assert (await response.json()) == document()
        async with http.get(closed.url + ROUTE) as response:
            assert response.status == 401


def _answered(exchange: Exchange) -> Answer:
    return answers.stream("ok") if b'"stream":true' in exchange.body.replace(b" ", b"") else answers.completion("ok")


def _attack(url: str, doc: dict[str, Any], mode: Any, key: str | None = None) -> dict[tuple[str, str], list[int]]:
    """Cases for every operation; which statuses each was answered with."""
    statuses: dict[tuple[str, str], list[int]] = {}
    # The same key in both places, where the document lets it come in either: two different ones are refused.
    headers = {"Authorization": f"Bearer {key}", "x-api-key": key} if key else {}
    schema = schemathesis.openapi.from_dict(doc)
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == ENDLESS:
            continue

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            response = case.call(base_url=url, timeout=20, headers=headers)
            refused = response.status_code == 503 and response.json()["error"]["code"] == "privacy_unavailable"
            # What must stay on the edge and is asked of the cloud is refused by policy: nothing failed.
            assert response.status_code < 500 or refused, (case.method, case.path, response.text)
            statuses.setdefault((case.method.upper(), case.path), []).append(response.status_code)

        try:
            ask()
        except Unsatisfiable:
            continue
    return statuses


def _described() -> set[tuple[str, str]]:
    """Every operation of the document but the stream that has no end."""
    described = {(method.upper(), path) for path, item in document()["paths"].items() for method in item}
    return described - {("GET", ENDLESS)}


async def test_every_documented_request_is_asked_and_none_makes_it_fail(
    start_router: StartRouter, edge: Upstream
) -> None:
    """With a key of every scope: each route gets what fits its schema, and answers."""
    keys = [{"name": "all", "sha256": hashed(KEY), "scopes": list(Scope)}]
    edges = [{"id": "edge-1", "url": edge.url, "models": [{"id": answers.MODEL}]}]
    router = await start_router(edges=edges, keys=keys)
    edge.default = _answered
    positive = schemathesis.GenerationMode.POSITIVE
    statuses = await asyncio.to_thread(_attack, router.url, document(), positive, KEY)
    assert set(statuses) == _described()
    refused = {operation for operation, seen in statuses.items() if 401 in seen}
    # The one that takes a token instead of a key says so to a token that is none.
    assert refused <= {("POST", "/fleet/v1/devices"), ("POST", "/admin/v1/session")}


async def test_no_request_beside_the_document_makes_it_fail(start_router: StartRouter, edge: Upstream) -> None:
    """What breaks the schemas: every route that takes anything is asked with what it does not take."""
    router = await start_router(edges=[{"id": "edge-1", "url": edge.url, "models": [{"id": answers.MODEL}]}])
    edge.default = _answered
    negative = schemathesis.GenerationMode.NEGATIVE
    statuses = await asyncio.to_thread(_attack, router.url, document(), negative)
    with_body = {
        (method.upper(), path)
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if "requestBody" in operation
    }
    assert with_body <= set(statuses)


@pytest.mark.parametrize("query", ["", "?seconds=1", "?seconds=%00", "?x=" + "y" * 4_000])
async def test_the_stream_without_an_end_begins_and_ends_with_its_client(start_router: StartRouter, query: str) -> None:
    router = await start_router()
    async with router.session.get(router.url + ENDLESS + query) as response:
        assert response.status == 200
        assert (await response.content.readuntil(b"\n\n")).startswith(b"retry:")
