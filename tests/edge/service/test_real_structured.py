"""Answers that cannot leave their form, on the real engine: schemas over seeds, demanded calls, limits that cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import orjson
import pytest

from edge.packages.package import Package
from tests.edge.service.fakes import MODEL
from tests.edge.service.harness import PARIS, real_engine, running_agent

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
_SCHEMAS: dict[str, dict[str, Any]] = {
    "enum": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 24}, "country": {"enum": ["France", "Italy"]}},
        "required": ["city", "country"],
        "additionalProperties": False,
    },
    "nested": {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "properties": {"at": {"type": "array", "items": {"type": "integer", "minimum": -9, "maximum": 90}}},
                "required": ["at"],
                "additionalProperties": False,
            }
        },
        "required": ["place"],
        "additionalProperties": False,
    },
    "references": {
        "$defs": {"pair": {"type": "array", "prefixItems": [{"const": "é"}, {"type": "boolean"}], "items": False}},
        "type": "array",
        "items": {"$ref": "#/$defs/pair"},
        "minItems": 2,
        "maxItems": 3,
    },
    "maps": {"type": "object", "additionalProperties": {"enum": [None, 1.5, "x"]}, "maxProperties": 2},
    "alternatives": {
        "anyOf": [
            {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"},
            {"allOf": [{"type": "integer", "minimum": 1}, {"maximum": 4}]},
        ]
    },
}
_TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}
    for name, parameters in (("look_up", _SCHEMAS["enum"]), ("travel-to", _SCHEMAS["nested"]))
]
_ASKED: list[Any] = [{"role": "user", "content": f"{PARIS} Answer as JSON."}]


@pytest.fixture
async def client(installed_model: Package, tmp_path: Path) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official client of an agent with one slot."""
    async with (
        running_agent(real_engine(installed_model, tmp_path / "run", slots=1)) as running,
        openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


@pytest.mark.parametrize("seeds", [1, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", _SCHEMAS)
async def test_complete_answers_fit_their_schema(client: openai.AsyncOpenAI, name: str, seeds: int) -> None:
    schema = _SCHEMAS[name]
    complete = 0
    for seed in range(seeds):
        answer = await client.chat.completions.create(
            model=MODEL,
            messages=_ASKED,
            response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
            temperature=1,
            seed=seed,
            max_tokens=200,
        )
        if answer.choices[0].finish_reason == "stop":
            complete += 1
            jsonschema.validate(orjson.loads(answer.choices[0].message.content or ""), schema)
        else:  # an array or a map without a bound may go on: a part of an answer is called one
            assert answer.choices[0].finish_reason == "length"
            assert name in ("nested", "maps")
    assert complete >= seeds * 0.9


@pytest.mark.parametrize("seeds", [1, pytest.param(100, marks=pytest.mark.slow)])
async def test_demanded_calls_fit_their_parameters(client: openai.AsyncOpenAI, seeds: int) -> None:
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in _TOOLS}
    for seed in range(seeds):
        answer = await client.chat.completions.create(
            model=MODEL,
            messages=_ASKED,
            tools=_TOOLS,
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=1,
            seed=seed,
            max_tokens=300,
        )
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        (call,) = choice.message.tool_calls or ()
        assert isinstance(call.function, object)
        jsonschema.validate(orjson.loads(call.function.arguments), schemas[call.function.name])


async def test_a_named_function_is_called_streamed_and_whole_alike(client: openai.AsyncOpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": _ASKED, "tools": _TOOLS, "temperature": 0, "max_tokens": 60}
    named = {"type": "function", "function": {"name": "look_up"}}
    whole = await client.chat.completions.create(**asked, tool_choice=named)
    (call,) = whole.choices[0].message.tool_calls or ()
    name, arguments, reasons, ids = "", "", [], set()
    async for part in await client.chat.completions.create(**asked, tool_choice=named, stream=True):
        for choice in part.choices:
            reasons.append(choice.finish_reason)
            assert not choice.delta.content
            for delta in choice.delta.tool_calls or ():
                ids |= {delta.id} - {None}
                name += delta.function.name or ""
                arguments += delta.function.arguments or ""
    assert (name, arguments) == (call.function.name, call.function.arguments) == ("look_up", arguments)
    assert reasons[-1] == whole.choices[0].finish_reason == "tool_calls"
    assert len(ids) == 1


async def test_a_low_limit_says_length_and_leaves_a_part(client: openai.AsyncOpenAI) -> None:
    for fields in (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMAS["enum"]}}},
        {"tools": _TOOLS, "tool_choice": "required"},
    ):
        for limit in (1, 8):
            answer = await client.chat.completions.create(
                model=MODEL,
                messages=_ASKED,
                max_tokens=limit,
                temperature=0,
                **fields,  # type: ignore[call-overload]
            )
            assert answer.choices[0].finish_reason == "length"
            assert answer.usage.completion_tokens == limit


async def test_any_object_ends_and_parses(client: openai.AsyncOpenAI) -> None:
    """No white space for a small model to lose itself in."""
    answer = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": f"{PARIS} Answer as a JSON object with the key city."}],
        response_format={"type": "json_object"},
        temperature=0,
        max_tokens=200,
    )
    assert "\n" not in (answer.choices[0].message.content or "")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(orjson.loads(answer.choices[0].message.content or ""), dict)
