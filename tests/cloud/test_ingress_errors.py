"""Errors of the ingress leave in the OpenAI envelope, also those that vLLM raises while it reads a body."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from shared.errors import QueueFull

pytest.importorskip("vllm")
rayllm: Any = pytest.importorskip("cloud.rayllm")


@pytest.fixture(scope="module")
def client() -> TestClient:
    """An application with the ingress's handlers and a route that takes the engine's chat request."""
    app = FastAPI()
    rayllm.answer_errors(app)

    def chat(body: Any) -> dict[str, bool]:
        return {"taken": body is not None}

    def fails() -> None:
        raise RuntimeError("CANARY")

    def full(final: bool) -> None:
        error = QueueFull("full", retry_after_s=7)
        raise error.for_good() if final else error

    chat.__annotations__["body"] = rayllm.ChatCompletionRequest
    app.post("/chat")(chat)
    app.get("/fails")(fails)
    app.get("/full")(full)
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"thinking_token_budget": -5}, "thinking_token_budget"),
        ({"prompt_logprobs": -7, "stream": True}, None),
        ({"min_tokens": "x"}, "min_tokens"),
    ],
)
def test_what_the_engines_request_model_refuses_is_the_clients_fault(
    client: TestClient, change: dict[str, Any], param: str | None
) -> None:
    """RV-05, RV-09: a validator that raises an error of its own kind was a bare 500."""
    answer = client.post("/chat", json={"model": "m", "messages": [{"role": "user", "content": "a"}], **change})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert set(error) == {"message", "type", "param", "code"}
    assert param in (None, error["param"])
    assert "-5" not in error["message"]


def test_a_fault_of_ours_has_the_envelope_and_tells_nothing(client: TestClient) -> None:
    answer = client.get("/fails")
    assert answer.status_code == 502
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert "CANARY" not in answer.text


@pytest.mark.parametrize("final", [False, True])
def test_a_client_is_told_when_to_come_again_or_that_it_is_of_no_use(client: TestClient, final: bool) -> None:
    answer = client.get("/full", params={"final": final})
    told = answer.headers.get("retry-after"), answer.headers.get("x-should-retry")
    assert told == ((None, "false") if final else ("7", None))
