"""Canaries: specimens hidden in every position of a body, and whether anything of them is in what a cloud got."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from router.privacy.classify import INLINE_BYTES
from shared.testing.answers import MODEL
from shared.testing.upstream import Exchange
from tests.router.http.test_other_apis import EMBEDDINGS, MESSAGES, RESPONSES
from tests.router.privacy.specimens import FOUND


@dataclass(frozen=True)
class Canary:
    """What is hidden, the text around it, and a request that carries it."""

    place: str
    hidden: str
    path: str
    raw: bytes


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _call(arguments: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [_user("x"), {"role": "assistant", "content": None, "tool_calls": [call]}]}


def _result(content: Any) -> dict[str, Any]:
    called = _call("{}")["messages"]
    return {"messages": [*called, {"role": "tool", "tool_call_id": "c", "content": content}]}


def _tool(**function: Any) -> dict[str, Any]:
    return {"messages": [_user("x")], "tools": [{"type": "function", "function": {"name": "f", **function}}]}


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "messages": [_user("x")],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    }


PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "system": lambda t: {"messages": [{"role": "system", "content": t}, _user("x")]},
    "developer": lambda t: {"messages": [{"role": "developer", "content": [{"type": "text", "text": t}]}, _user("x")]},
    "user": lambda t: {"messages": [_user(t)]},
    "user part": lambda t: {"messages": [_user([{"type": "text", "text": "see"}, {"type": "text", "text": t}])]},
    "earlier user": lambda t: {"messages": [_user(t), {"role": "assistant", "content": "ok"}, _user("go on")]},
    "assistant": lambda t: {"messages": [_user("x"), {"role": "assistant", "content": t}, _user("y")]},
    "refusal": lambda t: {"messages": [_user("x"), {"role": "assistant", "refusal": t}, _user("y")]},
    "arguments": lambda t: _call(json.dumps({"a": [{"b": t}]})),
    "arguments twice escaped": lambda t: _call(json.dumps({"a": json.dumps({"b": t})})),
    "tool result": _result,
    "tool result part": lambda t: _result([{"type": "text", "text": t}]),
    "function result": lambda t: {"messages": [_user("x"), {"role": "function", "name": "f", "content": t}]},
    "name": lambda t: {"messages": [{"role": "user", "content": "x", "name": t}]},
    "user field": lambda t: {"messages": [_user("x")], "user": t[:512]},
    "tool description": lambda t: _tool(description=t),
    "tool parameter": lambda t: _tool(parameters={"type": "object", "properties": {"p": {"enum": ["x", t]}}}),
    "schema text": lambda t: _schema({"type": "object", "description": t}),
    "schema default": lambda t: _schema({"type": "object", "properties": {"p": {"default": {"q": [t]}}}}),
    "stop": lambda t: {"messages": [_user("x")], "stop": ["\n", t]},
    "metadata": lambda t: {"messages": [_user("x")], "metadata": {"k": t}},
    "key": lambda t: {"messages": [_user("x")], "metadata": {t: "v"}},
    "unknown field": lambda t: {"messages": [_user("x")], "x_new": [[{"y": [1, None, t]}]]},
    "two parts": lambda t: {
        "messages": [_user([{"type": "text", "text": t[: len(t) // 2]}, {"type": "text", "text": t[len(t) // 2 :]}])]
    },
    "two tool results": lambda t: {
        "messages": [
            *_result(t[: len(t) // 2])["messages"],
            {"role": "tool", "tool_call_id": "c", "content": t[len(t) // 2 :]},
        ]
    },
    "prediction": lambda t: {"messages": [_user("x")], "prediction": {"type": "content", "content": t}},
    "prompt": lambda t: {"prompt": t},
    "prompts": lambda t: {"prompt": ["x", t]},
    "suffix": lambda t: {"prompt": "x", "suffix": t},
}
OTHER_PLACES: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "embedded": (EMBEDDINGS, lambda t: {"input": t}),
    "embedded among others": (EMBEDDINGS, lambda t: {"input": ["x", t]}),
    "responses: instructions": (RESPONSES, lambda t: {"input": "x", "instructions": t}),
    "responses: input": (RESPONSES, lambda t: {"input": [_user([{"type": "input_text", "text": t}])]}),
    "responses: tool result": (
        RESPONSES,
        lambda t: {"input": [_user("x"), {"type": "function_call_output", "call_id": "c", "output": t}]},
    ),
    "messages: system": (MESSAGES, lambda t: {"messages": [_user("x")], "system": t, "max_tokens": 8}),
    "messages: tool result": (
        MESSAGES,
        lambda t: {
            "max_tokens": 8,
            "messages": [
                _user("x"),
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": [t]}}]},
                _user([{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": t}]}]),
            ],
        },
    ),
}
"""Places of the APIs whose answers are passed on as they are."""


def canaries(*, pad: bool = False, step: int = 1) -> list[Canary]:
    """Every `step`-th specimen, each in the next place; over all specimens every place comes up many times."""
    draw = random.Random(6)
    places = [*PLACES, *OTHER_PLACES]
    made = []
    for index, (_, text, hidden) in enumerate(FOUND[::step]):
        place = places[index % len(places)]
        path, write = OTHER_PLACES[place] if place in OTHER_PLACES else (None, PLACES[place])
        body: dict[str, Any] = {"model": MODEL, **write(text)}
        if pad:
            body["pad"] = "lorem ipsum " * (INLINE_BYTES // 10)
        body["stream"] = path is None and draw.random() < 0.3
        names = list(body)
        draw.shuffle(names)
        path = path or ("/v1/completions" if "prompt" in body else "/v1/chat/completions")
        raw = orjson.dumps({name: body[name] for name in names})
        # Half of the bodies say everything in escapes: what the JSON says counts, not its bytes.
        raw = raw if draw.random() < 0.5 else json.dumps(orjson.loads(raw), ensure_ascii=True).encode()
        made.append(Canary(place, hidden, path, raw))
    return made


def _strings(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from _strings(value)
    elif isinstance(node, list):
        for value in node:
            yield from _strings(value)
    else:
        yield str(node)


def _digits(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKC", text) if c.isdigit())


def assert_no_canary(exchange: Exchange, sent: Iterable[Canary]) -> None:
    """Nothing hidden in `sent` is in what the cloud got: as text, as digits, or in escapes."""
    texts = [exchange.path, *exchange.headers.values(), *_strings(orjson.loads(exchange.body))]
    everything = "\n".join(texts)
    digits = _digits("".join(texts))
    for canary in sent:
        assert canary.hidden not in everything, (canary.place, "text")
        if len(canary.hidden) >= 24 and canary.hidden.isascii():
            half = len(canary.hidden) // 2
            assert canary.hidden[:half] not in everything, (canary.place, "its first half")
            assert canary.hidden[half:] not in everything, (canary.place, "its second half")
        if len(number := _digits(canary.hidden)) >= 9:
            assert number not in digits, (canary.place, "digits")
