"""The OpenAI surface with the official client: the right answer, whole streams, clean shapes."""

from __future__ import annotations

import json

import pytest

from edge.packages.catalogue import DEFAULT_MODEL
from tests.cloud.cluster.conftest import Cluster, chat

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]


def test_chat_answers_paris(cluster: Cluster) -> None:
    answer = cluster.client.chat.completions.create(**chat(max_tokens=32))
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == DEFAULT_MODEL
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_streams_paris_and_its_usage(cluster: Cluster) -> None:
    stream = cluster.client.chat.completions.create(
        **chat(max_tokens=32), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert "Paris" in text
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason] == ["stop"]
    assert chunks[-1].usage is not None


def test_a_stream_ends_with_done_and_is_not_held_back_by_proxies(cluster: Cluster) -> None:
    answer = cluster.ask("POST", "/v1/chat/completions", chat(max_tokens=4, stream=True))
    events = [event for event in answer.body.split(b"\n\n") if event]
    assert events[-1] == b"data: [DONE]"
    assert sum(event == b"data: [DONE]" for event in events) == 1
    assert all(json.loads(event.removeprefix(b"data: "))["object"] == "chat.completion.chunk" for event in events[:-1])
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (answer.headers["x-accel-buffering"], answer.headers["cache-control"]) == ("no", "no-cache")


def test_completions_and_structured_output(cluster: Cluster) -> None:
    answer = cluster.client.completions.create(model=DEFAULT_MODEL, prompt="1, 2, 3,", max_tokens=4, temperature=0)
    assert "4" in answer.choices[0].text
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    shaped = cluster.client.chat.completions.create(
        **chat("Name a city as JSON.", max_tokens=64),
        response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema}},
    )
    if shaped.choices[0].finish_reason == "stop":
        assert set(json.loads(shaped.choices[0].message.content or "")) == {"city"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "wanted",
    [
        {"grammar": "root ::= root"},
        {"grammar": "root ::= a\na ::= b\nb ::= a"},
        {"regex": "("},
        {"regex": "(" * 2000 + "a" + ")" * 2000},
        {"json": {"$ref": "#"}},
        {"json": '{"type":"array","items":' * 2000 + "{}" + "}" * 2000},
        {"choice": []},
        {"structural_tag": "{}"},
        {},
        [1],
        "x",
    ],
    ids=str,
)
def test_sc_a_grammar_that_no_engine_can_follow_is_the_callers_fault(
    cluster: Cluster, wanted: object, stream: bool
) -> None:
    """As a failure of the server it would be tried again elsewhere, and end in an open breaker for everybody."""
    answer = cluster.ask("POST", "/v1/chat/completions", chat(max_tokens=4, stream=stream, structured_outputs=wanted))
    if answer.status == 200:  # a stream that had begun
        assert b'"error"' in answer.body
        assert b'"invalid_request"' in answer.body
        assert b"[DONE]" not in answer.body
    else:
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
    fine = cluster.ask("POST", "/v1/chat/completions", chat(max_tokens=4, structured_outputs={"choice": ["yes", "no"]}))
    assert json.loads(fine.body)["choices"][0]["message"]["content"] in ("yes", "no")


def test_text_parts_and_unicode_arrive_whole(cluster: Cluster) -> None:
    parts = [{"type": "text", "text": "杭州🦀é "}, {"type": "text", "text": "Which city is the capital of France?"}]
    answer = cluster.client.chat.completions.create(
        model=DEFAULT_MODEL, messages=[{"role": "user", "content": parts}], max_tokens=8, temperature=0
    )
    assert answer.choices[0].message.content


def test_models_have_the_openai_shape(cluster: Cluster) -> None:
    model = cluster.client.models.retrieve(DEFAULT_MODEL)
    assert (model.id, model.object) == (DEFAULT_MODEL, "model")
    assert cluster.ask("GET", "/v1/models/none").error["code"] == "model_not_found"
    assert DEFAULT_MODEL in [each.id for each in cluster.client.models.list()]


def test_other_origins_get_no_permission(cluster: Cluster) -> None:
    connection = cluster.connect()
    connection.request("GET", "/v1/models", headers={"Origin": "https://example.org"})
    response = connection.getresponse()
    assert response.read()
    assert not [name for name, _ in response.getheaders() if name.lower().startswith("access-control")]
    connection.close()


def test_nothing_of_it_listens_beyond_loopback(cluster: Cluster) -> None:
    """Ray's own servers included: what they read they trust."""
    assert {address.removeprefix("::ffff:") for address in cluster.listening()} == {"127.0.0.1"}
