"""Bad requests of every kind to a real engine: refused in the OpenAI shape, streamed or not; the engine lives on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cloud.cluster.conftest import Cluster, chat

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]


def schema(inner: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": inner}}}


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("RV-01 no messages", {"messages": []}, "messages"),
    ("RV-01 null content", {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ("RV-01 unknown role", {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    ("RV-03 bias by word", {"logit_bias": {"AI": -100}}, "logit_bias"),
    ("RV-03 bias beyond the vocabulary", {"logit_bias": {"99999": 5}}, "logit_bias"),
    ("RV-03 bias of null", {"logit_bias": {"12": None}}, "logit_bias"),
    ("RV-05 no such type", schema({"type": "strin"}), "response_format"),
    ("RV-05 recursive", schema({"type": "object", "properties": {"a": {"$ref": "#"}}}), "response_format"),
    ("RV-05 backtracking", schema({"type": "string", "pattern": "(a+)+$"}), "response_format"),
    ("RV-09 stream is text", {"stream": "true"}, "stream"),
    ("RV-09 messages is an object", {"messages": {}}, "messages"),
    ("too many sequences", {"n": 100}, "n"),
    ("stop id beyond the vocabulary", {"stop_token_ids": [100_000]}, "stop_token_ids"),
    ("RV-05 what the engine's own model refuses", {"thinking_token_budget": -5}, "thinking_token_budget"),
    ("output over the context", {"max_tokens": 100_000}, "max_tokens"),
    ("prompt over the context", {"messages": [{"role": "user", "content": "word " * 3000}]}, "messages"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("name", "change", "param"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_a_fault_is_refused_and_named(
    cluster: Cluster, name: str, change: dict[str, Any], param: str, stream: bool
) -> None:
    answer = cluster.ask("POST", "/v1/chat/completions", chat(stream=stream, max_tokens=4) | change)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/json"
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["param"] == param
    assert not any(word in answer.body.lower() for word in (b"ray", b"vllm", b"exception", b"request id"))


def test_context_overflow_has_its_code_and_both_numbers(cluster: Cluster) -> None:
    error = cluster.ask("POST", "/v1/chat/completions", chat("word " * 600, max_tokens=8)).error
    assert error["code"] == "context_length_exceeded"
    assert "512" in error["message"]
    output = cluster.ask("POST", "/v1/chat/completions", chat(max_tokens=100_000)).error
    assert output["code"] == "context_length_exceeded"
    assert "512" in output["message"]
    prompt = {"model": chat()["model"], "prompt": "word " * 600, "max_tokens": 8}
    assert cluster.ask("POST", "/v1/completions", prompt).error["param"] == "prompt"


@pytest.mark.parametrize(
    "raw", [b"", b"{", b'{"a":NaN}', b'{"model":"a","model":"b"}', b"[" * 100_000, b'{"a":"\\ud800"}']
)
def test_broken_json_is_refused(cluster: Cluster, raw: bytes) -> None:
    """RV-07, RV-09."""
    answer = cluster.ask("POST", "/v1/chat/completions", raw)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")


def test_unknown_model_missing_model_and_unknown_route(cluster: Cluster) -> None:
    unknown = cluster.ask("POST", "/v1/chat/completions", chat(model="CANARY-MODEL"))
    assert (unknown.status, unknown.error["code"], unknown.error["param"]) == (404, "model_not_found", "model")
    assert b"CANARY" not in unknown.body
    body = {name: value for name, value in chat().items() if name != "model"}
    missing = cluster.ask("POST", "/v1/chat/completions", body)
    assert (missing.status, missing.error["param"]) == (400, "model")
    for method, path in (("GET", "/v1/other"), ("GET", "/v1/chat/completions"), ("POST", "/tokenize")):
        answer = cluster.ask(method, path, b"{}" if method == "POST" else None)
        assert (answer.status, answer.error["code"]) == (404, "unknown_route")


def test_after_all_of_it_the_engine_still_answers(cluster: Cluster) -> None:
    assert "Paris" in cluster.ask("POST", "/v1/chat/completions", chat(max_tokens=16)).body.decode()
