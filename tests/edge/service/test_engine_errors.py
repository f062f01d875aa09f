"""The engine's errors in our words: whose fault, and nothing of its inner text."""

from __future__ import annotations

import orjson
import pytest

from edge.service import engine_errors
from shared.errors import BackendStatus, ContextLengthExceeded, InvalidRequest, IsthmusError, NotReady


def _raw(message: str, **fields: object) -> bytes:
    return orjson.dumps({"error": {"message": message, **fields}})


@pytest.mark.parametrize(
    ("status", "raw", "kind"),
    [
        (400, _raw("Field 'n': Value must be between 1 <= value <= 2"), InvalidRequest),
        (400, _raw("x", type="exceed_context_size_error", n_prompt_tokens=9, n_ctx=8), ContextLengthExceeded),
        (400, _raw("x", type="exceed_context_size_error"), ContextLengthExceeded),
        (500, _raw("image input is not supported - hint: mmproj"), InvalidRequest),
        (500, _raw("Failed to parse tool call arguments as JSON"), InvalidRequest),
        (500, _raw("does not match the expected peg-native format"), InvalidRequest),
        (500, _raw("While executing\nError: Jinja Exception: Roles must alternate"), InvalidRequest),
        (500, _raw("decode failed"), BackendStatus),
        (500, _raw("Invalid input batch."), BackendStatus),  # put together by the engine: no request can change it
        (503, _raw("Loading model"), NotReady),
        (500, b"<html>", BackendStatus),
        (500, b"[]", BackendStatus),
        (500, b"", BackendStatus),
        (404, b'{"error": "gone"}', InvalidRequest),
    ],
)
def test_each_answer_has_one_meaning(status: int, raw: bytes, kind: type[IsthmusError]) -> None:
    error = engine_errors.of_response(status, raw)
    assert type(error) is kind
    assert "hint" not in error.message


def test_the_templates_reason_is_one_bounded_line() -> None:
    """CT-01"""
    error = engine_errors.of_response(400, _raw("trace\nError: Jinja Exception: " + "r" * 500 + "\nmore"))
    assert error.code == "template_error"
    assert "trace" not in error.message
    assert len(error.message) < 300


def test_events_carry_their_status() -> None:
    assert isinstance(engine_errors.of_event(b'data: {"error":{"code":400,"message":"x"}}\n\n'), InvalidRequest)
    assert isinstance(engine_errors.of_event(b'error: {"code":500,"message":"x"}\n\n'), BackendStatus)
    assert isinstance(engine_errors.of_event(b"data: nonsense\n\n"), BackendStatus)


@pytest.mark.parametrize(
    ("path", "param"),
    [("/v1/chat/completions", "messages"), ("/v1/completions", "prompt"), ("/v1/embeddings", "input")],
)
@pytest.mark.parametrize("figures", [{}, {"n_prompt_tokens": 9, "n_ctx": 8}])
def test_a_text_that_is_too_long_is_named_by_the_field_that_holds_it(
    path: str, param: str, figures: dict[str, int]
) -> None:
    error = engine_errors.of_response(400, _raw("x", type="exceed_context_size_error", **figures), path=path)
    assert isinstance(error, ContextLengthExceeded)
    assert error.param == param
