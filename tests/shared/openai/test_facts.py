"""Facts of a request: numbers and names that a decision needs, read without keeping text."""

from __future__ import annotations

from typing import Any

import pytest

from shared.openai.facts import Endpoint, facts_of

_BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def test_facts_of_a_plain_request() -> None:
    facts = facts_of(Endpoint.CHAT, _BODY, text_bytes=300)
    assert (facts.model, facts.stream, facts.prompt_tokens_estimate, facts.max_tokens) == ("m", False, 100, None)
    assert facts.features == frozenset()


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7}, 7),
        ({"max_tokens": 5, "max_completion_tokens": 5}, 5),
        ({"max_tokens": None}, None),
    ],
)
def test_the_limit_is_the_one_the_caller_set(fields: dict[str, Any], limit: int | None) -> None:
    assert facts_of(Endpoint.CHAT, {**_BODY, **fields}, text_bytes=1).max_tokens == limit


@pytest.mark.parametrize(
    ("fields", "features"),
    [
        ({"tools": [{}]}, {"tools"}),
        ({"tools": []}, set()),
        ({"response_format": {"type": "json_schema"}}, {"structured_output"}),
        ({"response_format": {"type": "json_object"}}, {"structured_output"}),
        ({"response_format": {"type": "text"}}, set()),
        ({"response_format": None}, set()),
        ({"logprobs": True}, {"logprobs"}),
    ],
)
def test_features_that_a_backend_must_have(fields: dict[str, Any], features: set[str]) -> None:
    assert facts_of(Endpoint.CHAT, {**_BODY, **fields}, text_bytes=1).features == features


def test_an_empty_prompt_still_counts_as_a_token() -> None:
    assert facts_of(Endpoint.CHAT, _BODY, text_bytes=0).prompt_tokens_estimate == 1
