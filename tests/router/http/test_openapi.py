"""The OpenAPI document describes the routes there are, and nothing that fits it or misses it makes the router fail."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from router.http.openapi import ROUTE, document
from shared.testing import answers
from shared.testing.answers import Answer
from shared.testing.upstream import Exchange, Upstream
from tests.router.conftest import StartRouter

schemathesis = pytest.importorskip("schemathesis")

EXAMPLES = 3


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


def _attack(url: str, doc: dict[str, Any], mode: Any) -> dict[str, int]:
    """Cases for every operation; how many requests each answered status had."""
    statuses: dict[str, int] = {}
    schema = schemathesis.openapi.from_dict(doc)
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == "/admin/v1/events":  # has no end
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
            response = case.call(base_url=url, timeout=20)
            assert response.status_code < 500, (case.method, case.path, response.text)
            statuses[str(response.status_code)] = statuses.get(str(response.status_code), 0) + 1

        try:
            ask()
        except Unsatisfiable:
            continue
    return statuses


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
async def test_no_request_by_the_document_makes_it_fail(start_router: StartRouter, edge: Upstream, mode: str) -> None:
    router = await start_router(edges=[{"id": "edge-1", "url": edge.url, "models": [{"id": answers.MODEL}]}])
    edge.default = _answered
    chosen = getattr(schemathesis.GenerationMode, mode)
    statuses = await asyncio.to_thread(_attack, router.url, document(), chosen)
    assert sum(statuses.values()) >= EXAMPLES
