"""`structured_outputs`: what would stall or break a grammar compiler is refused before an engine sees it."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import InvalidRequest
from shared.openai.facts import Endpoint
from shared.openai.validation import validate

_ROUTES = {
    Endpoint.CHAT: {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    Endpoint.COMPLETIONS: {"model": "m", "prompt": "x"},
}


@pytest.mark.parametrize("endpoint", _ROUTES)
@pytest.mark.parametrize(
    "value",
    [
        {"choice": ["yes", "no"]},
        {"regex": "[0-9]{4}(-[0-9]{2}){2}"},
        {"grammar": 'root ::= "a" | ("b" root)'},
        {"json": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"json": '{"type": "object"}', "disable_any_whitespace": True},
        {"json_object": True},
        {"structural_tag": "{}"},
        None,
    ],
    ids=str,
)
def test_what_engines_take_passes(endpoint: Endpoint, value: Any) -> None:
    validate(endpoint, _ROUTES[endpoint] | {"structured_outputs": value})


@pytest.mark.parametrize("endpoint", _ROUTES)
@pytest.mark.parametrize(
    ("value", "param"),
    [
        ([1], "structured_outputs"),
        ("x", "structured_outputs"),
        ({"choice": []}, "structured_outputs.choice"),
        ({"choice": ["a"] * 513}, "structured_outputs.choice"),
        ({"choice": "yes"}, "structured_outputs.choice"),
        ({"regex": "(" * 2000 + "a" + ")" * 2000}, "structured_outputs.regex"),
        ({"regex": "a" * 5000}, "structured_outputs.regex"),
        ({"grammar": "root ::= " + "(" * 3000 + '"a"' + ")" * 3000}, "structured_outputs.grammar"),
        ({"grammar": "root ::= " + " | ".join(f'"w{n}"' for n in range(20_000))}, "structured_outputs.grammar"),
        ({"json": '{"type":"array","items":' * 2000 + "{}" + "}" * 2000}, "structured_outputs.json"),
        ({"json": {"$ref": "#"}}, "structured_outputs.json"),
        ({"json": {"enum": list(range(600))}}, "structured_outputs.json"),
        ({"json": "{"}, "structured_outputs.json"),
        ({"json": "[]"}, "structured_outputs.json"),
        ({"json_object": 1}, "structured_outputs.json_object"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_what_stalls_or_breaks_them_is_refused(endpoint: Endpoint, value: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validate(endpoint, _ROUTES[endpoint] | {"structured_outputs": value})
    assert refused.value.param == param
