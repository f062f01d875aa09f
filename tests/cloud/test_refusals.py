"""What the engine says is translated: status, field and numbers stay, values and internal names do not."""

from __future__ import annotations

import pytest

from cloud.refusals import of_event, translated
from shared.errors import BackendError, ContextLengthExceeded, InvalidRequest

TOO_LONG = (
    "This model's maximum context length is 2048 tokens. However, you requested 100 output tokens and your prompt "
    "contains 5000 input tokens, for a total of 5100 tokens. Please reduce. (parameter=input_tokens, value=5000)"
)


def test_context_overflow_names_both_numbers() -> None:
    error = translated(TOO_LONG, 400, "input_tokens", prompt_field="prompt")
    assert isinstance(error, ContextLengthExceeded)
    assert (error.code, error.param, error.status) == ("context_length_exceeded", "prompt", 400)
    assert "5100" in error.message
    assert "2048" in error.message


def test_an_output_limit_over_the_context_names_both_numbers() -> None:
    message = "max_tokens=100000 cannot be greater than max_model_len=max_total_tokens=512. Please request fewer."
    error = translated(message, 400, "max_tokens")
    assert isinstance(error, ContextLengthExceeded)
    assert error.param == "max_tokens"
    assert "100000" in error.message
    assert "512" in error.message


def test_context_overflow_found_before_tokenising_has_one_number() -> None:
    error = translated("This model's maximum context length is 2048 tokens. 99 characters", 400, "input_text")
    assert isinstance(error, ContextLengthExceeded)
    assert "2048" in error.message


@pytest.mark.parametrize(
    ("param", "expected"),
    [("logit_bias", "logit_bias"), (None, None), ("sk-secret VALUE", None), ("input_tokens", "messages")],
)
def test_a_refusal_keeps_the_field_and_drops_the_message(param: str | None, expected: str | None) -> None:
    """LG-01: the engine's message repeats values of the request."""
    error = translated("token_id(s) [999999999] of CANARY (Request ID: abc), ray.llm._internal", 400, param)
    assert isinstance(error, InvalidRequest)
    assert error.param == expected
    assert not any(word in error.message for word in ("CANARY", "999999999", "abc", "ray"))


def test_a_failure_of_the_engine_is_not_the_clients() -> None:
    error = translated("EngineDeadError: CANARY", 500, None)
    assert isinstance(error, BackendError)
    assert "CANARY" not in error.message


def test_error_events_are_told_from_content_that_speaks_of_errors() -> None:
    assert of_event(b'data: {"id":"x","choices":[{"delta":{"content":"{\\"error\\": 1}"}}]}\n\n') is None
    assert of_event(b"data: [DONE]\n\n") is None
    error = of_event(b'data: {"error": {"message": "bad", "type": "x", "param": "stop", "code": 400}}\n\n')
    assert isinstance(error, InvalidRequest)
    assert error.param == "stop"
    assert isinstance(of_event(b'data: {"error":{"message":"dead","code":500}}\n\n'), BackendError)
