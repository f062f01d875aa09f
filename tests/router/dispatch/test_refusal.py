"""Error answers of backends: status and code stay, foreign words do not."""

from __future__ import annotations

import orjson
import pytest

from router.dispatch.refusal import read_refusal
from router.dispatch.verdict import Outcome

SECRET = "ray.llm._internal /root/secret.py CANARY"


def read(status: int, raw: bytes, *, own_words: bool = False) -> tuple[int, dict[str, object], Outcome]:
    refusal = read_refusal(status, raw, retry_after=None, own_words=own_words)
    return refusal.status, orjson.loads(refusal.body)["error"], refusal.outcome


@pytest.mark.parametrize(
    "raw",
    [b"", b"<html>CANARY", b"[1]", b'"CANARY"', b'{"error":"CANARY"}',
     b'{"error":{"message":["CANARY"],"code":"CANARY !"}}',
     b'{"detail":"CANARY"}',
     b'{"error":{"message":"CANARY","type":"CANARY","param":"CANARY \\n","code":500}}', b"\xff\xfe"],
)  # fmt: skip
@pytest.mark.parametrize("status", [400, 404, 422, 500, 503])
def test_anything_becomes_our_envelope(raw: bytes, status: int) -> None:
    kept, error, _ = read(status, raw)
    assert kept == status
    assert set(error) == {"message", "type", "param", "code"}
    assert b"CANARY" not in orjson.dumps(error)
    assert error["message"] and error["code"]


def test_code_and_param_that_are_plain_names_stay() -> None:
    raw = orjson.dumps(
        {"error": {"message": SECRET, "type": "invalid_request_error", "param": "tools[0].x", "code": "bad"}}
    )
    _, error, outcome = read(400, raw)
    assert (error["code"], error["param"], error["type"]) == ("bad", "tools[0].x", "invalid_request_error")
    assert "ray" not in str(error["message"]) and outcome is Outcome.REFUSED_REQUEST


def test_an_edge_agents_own_words_go_on() -> None:
    raw = orjson.dumps({"error": {"message": "The queue is full.", "type": "capacity_error", "code": "queue_full"}})
    assert read(503, raw, own_words=True)[1]["message"] == "The queue is full."
    assert read(503, raw, own_words=False)[1]["message"] != "The queue is full."


@pytest.mark.parametrize(
    "message,limit,asked",
    [
        ("This model's maximum context length is 2048 tokens. However, you requested 3010 tokens (3000 in the "
         "messages, 10 in the completion).", "2048", "3010"),
        ("'max_tokens' is too large: 5000. This model's maximum context length is 2048 tokens and your request has 33 "
         "input tokens (5000 > 2048 - 33).", "2048", "33"),
        ("Internal exception: x. The input (5120 tokens) is longer than the maximum model length of 2048. "
         "maximum context length", "2048", "5120"),
    ],
)  # fmt: skip
def test_too_long_keeps_its_numbers(message: str, limit: str, asked: str) -> None:
    """CX-01."""
    _, error, outcome = read(400, orjson.dumps({"object": "error", "message": message, "code": 400}))
    assert error["code"] == "context_length_exceeded" and outcome is Outcome.CONTEXT_EXCEEDED
    assert limit in str(error["message"]) and asked in str(error["message"])
    assert "exception" not in str(error["message"])


def test_the_routers_own_key_refused_is_no_fault_of_the_client() -> None:
    status, error, _ = read(401, b'{"error":{"message":"bad key sk-CANARY","code":"invalid_api_key"}}')
    assert status == 502 and "CANARY" not in str(error["message"])


def test_a_gone_model_is_told_from_a_bad_request() -> None:
    assert read(404, b'{"error":{"message":"x","code":"model_not_found"}}')[2] is Outcome.MODEL_GONE
    assert read(404, b'{"detail":"Model x not found"}')[2] is Outcome.MODEL_GONE
    assert read(404, b"")[2] is Outcome.REFUSED_REQUEST
