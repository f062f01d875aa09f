"""The cloud's OpenAPI document names the routes of ingress and capacity application, and what the guard checks."""

from __future__ import annotations

import re
from pathlib import Path

import orjson

import cloud
from cloud.guard import ADMIN_PREFIX
from cloud.openapi import CAPACITY_ROUTE, METRICS_ROUTE, document
from cloud.render import OPS_NAME
from shared.openai.facts import Endpoint


def test_every_route_of_the_ingress_is_described_and_no_other() -> None:
    # Read and not imported: that would start to load vLLM.
    source = (Path(cloud.__file__).parent / "rayllm.py").read_text()
    served = {
        (method, path.replace("{model:path}", "{model}"))
        for method, path in re.findall(r'lambda app: app\.(get|post)\("([^"]+)"\)', source)
    }
    served |= {
        (method, f"{ADMIN_PREFIX}{path}".replace("{name:path}", "{name}"))
        for method, path in re.findall(r'lambda app: app\.(get|post)\(ADMIN_PREFIX \+ "([^"]+)"\)', source)
    }
    assert len(served) == 7
    described = {(method, path) for path, item in document()["paths"].items() for method in item}
    assert described == served | {("get", CAPACITY_ROUTE), ("get", METRICS_ROUTE)}
    assert OPS_NAME.endswith(CAPACITY_ROUTE.split("/")[1])


def test_bodies_are_those_that_the_guard_checks() -> None:
    schemas = document()["components"]["schemas"]
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', orjson.dumps(document()).decode()))
    assert named <= set(schemas)
    assert "messages" in schemas["ChatRequest"]["properties"]
    body = document()["paths"][Endpoint.CHAT.value]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/ChatRequest"}
