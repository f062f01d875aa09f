"""What the engine would get wrong in silence, each rewritten or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edge.service.translation import EngineRequest, folded_seed, translate
from shared.errors import InvalidRequest, NotFound
from shared.openai.facts import Endpoint
from shared.openai.validation import validate
from tests.edge.service.fakes import FACTS, MODEL

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


def _chat(**fields: Any) -> EngineRequest:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}
    validate(Endpoint.CHAT, body)
    return translate(Endpoint.CHAT, body, replace(FACTS, slots=2))


def _text(**fields: Any) -> EngineRequest:
    body = {"model": MODEL, "prompt": "hi", **fields}
    validate(Endpoint.COMPLETIONS, body)
    return translate(Endpoint.COMPLETIONS, body, replace(FACTS, slots=2))


def test_a_stream_with_progress_and_usage_is_always_asked_for() -> None:
    for request in (_chat(), _chat(stream=True), _text()):
        assert request.body["stream"] is True
        assert request.body["return_progress"] is True
        assert request.body["stream_options"] == {"include_usage": True}
    assert (_chat().stream, _chat(stream=True).stream) == (False, True)


def test_only_known_fields_reach_the_engine() -> None:
    reaching = _chat(id_slot=0, cache_prompt=False, n_predict=9, n_probs=10**6, return_tokens=True, made_up=1).body
    assert not {"id_slot", "cache_prompt", "n_predict", "n_probs", "return_tokens", "made_up"} & set(reaching)


def test_sampling_defaults_are_openais() -> None:
    body = _chat().body
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (1.0, 1.0, 0, 0.0)
    assert _chat(temperature=0, top_k=-1).body["temperature"] == 0
    assert _chat(top_k=-1).body["top_k"] == 0
    assert _chat(repetition_penalty=1.2).body["repeat_penalty"] == 1.2


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 2, 2**32 - 1, 2**32, 2**63 - 1, -1, -(2**63)])
def test_seeds_fit_the_engine_and_never_mean_random(seed: int) -> None:
    """The engine reads 2**32 - 1 as random, and cuts larger ones so that they all become one."""
    assert 0 <= folded_seed(seed) < 2**32 - 1
    assert _chat(seed=seed).body["seed"] == folded_seed(seed)


def test_seeds_stay_apart() -> None:
    assert len({folded_seed(2**32 + number) for number in range(1000)}) == 1000
    assert [folded_seed(number) for number in range(5)] == [0, 1, 2, 3, 4]


def test_logit_bias_takes_the_form_that_works() -> None:
    assert _chat(logit_bias={"12": 5, "7": -100}).body["logit_bias"] == [[12, 5], [7, False]]


def test_max_tokens_has_one_name() -> None:
    assert _chat(max_completion_tokens=7).body["max_tokens"] == 7
    assert _chat(max_completion_tokens=7).max_tokens_param == "max_completion_tokens"
    assert "max_tokens" not in _chat().body
    assert _text().body["max_tokens"] == 16  # OpenAI's default for this route


def test_heat_caps_the_output() -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    for asked, sent in ((None, 64), (10, 10), (1000, 64)):
        request = translate(Endpoint.CHAT, {**body, "max_tokens": asked}, FACTS, output_cap_tokens=64)
        assert request.body["max_tokens"] == sent
        assert request.max_tokens == asked


def test_message_parts_become_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [
        {"role": "developer", "content": "s"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}]},
    ]
    assert _chat(messages=messages).body["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "no"},
        {"role": "assistant", "content": "never"},
    ]


def test_a_tool_call_in_the_history_is_kept() -> None:
    """RV-01, fifth case."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "x"},
    ]
    sent = _chat(messages=messages).body["messages"]
    assert sent[1] == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert sent[2] == {"role": "tool", "content": "x", "tool_call_id": "1"}


def test_logprobs_without_alternatives_still_come() -> None:
    assert _chat(logprobs=True).body["top_logprobs"] == 1
    assert _chat(logprobs=True).top_logprobs == 0
    assert _chat().top_logprobs is None
    assert _text(logprobs=0).body["logprobs"] == 1


def test_schemas_become_grammars() -> None:
    assert _chat(response_format=SCHEMA).body["grammar"].startswith("%llguidance")
    assert "grammar" in _chat(response_format={"type": "json_object"}).body
    assert "grammar" not in _chat(response_format={"type": "text"}).body
    assert "response_format" not in _chat(response_format=SCHEMA).body


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop_token_ids": [2]}, "stop_token_ids"),
        ({"min_tokens": 5}, "min_tokens"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"guided_json": {}}, "guided_json"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"grammar": "root ::= x"}, "grammar"),
        ({"lora": [{"id": 0}]}, "lora[0].name"),
        ({"lora": [{"name": "a", "scale": -1}]}, "lora[0].scale"),
        ({"lora": [{"name": "a", "id": 0}]}, "lora[0].id"),
        ({"lora": "a b"}, "lora"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"truncation": "auto"}, "truncation"),
        ({"n": 3}, "n"),
        ({"logit_bias": {"49152": 1}}, "logit_bias"),
        ({"tools": TOOLS, "response_format": SCHEMA}, "response_format"),
    ],
)
def test_what_cannot_be_honoured_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        _chat(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"stop_token_ids": []},
        {"min_tokens": 0},
        {"ignore_eos": False},
        {"length_penalty": 1.0},
        {"modalities": ["text"]},
        {"truncation": "disabled"},
        {"n": 2},
        {"tools": TOOLS, "tool_choice": "none", "response_format": SCHEMA},
        {"metadata": {"a": "b"}, "store": False, "service_tier": "auto", "user": "u"},
    ],
)
def test_neutral_and_harmless_values_pass(fields: dict[str, Any]) -> None:
    _chat(**fields)


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_media_is_refused_by_position(kind: str) -> None:
    content = [{"type": "text", "text": "see"}, {"type": kind, kind: {}}]
    with pytest.raises(InvalidRequest) as caught:
        _chat(messages=[{"role": "user", "content": content}])
    assert caught.value.param == "messages[0].content[1]"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": [49152]}, "prompt"),
        ({"prompt": [[1], [2, 50000]]}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"prompt": ["a", "b"], "n": 2}, "n"),
    ],
)
def test_legacy_fields_that_cannot_be_honoured(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        _text(**fields)
    assert caught.value.param == param


def test_slots_follow_choices_and_prompts() -> None:
    assert _chat(n=2).slots == 2
    assert _text(prompt=["a", "b", "c"]).slots == 3
    assert _text(prompt=[1, 2, 3]).slots == 1
    assert _text(prompt=[[1], [2]]).slots == 2


def test_another_model_is_not_served() -> None:
    with pytest.raises(NotFound) as caught:
        _chat(model="gpt-4o")
    assert caught.value.code == "model_not_found"
    assert "gpt-4o" not in caught.value.message


def test_tools_need_a_template_or_a_grammar() -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}
    with pytest.raises(InvalidRequest):
        translate(Endpoint.CHAT, body, replace(FACTS, features=frozenset()))
