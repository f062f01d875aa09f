"""Every name that stands in a span, in one place: OpenTelemetry's for HTTP and generative AI, and our own.

Those for generative AI follow `gen_ai.client.inference` of the OpenTelemetry GenAI conventions, which are in
development: when a name changes there, it changes here and nowhere else. Its opt-in attributes that hold content
(`gen_ai.input.messages`, `gen_ai.output.messages`, `gen_ai.system_instructions`, tools) have no name here on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from shared.openai.facts import Endpoint
from shared.tracing.port import Fact

ERROR_TYPE = "error.type"
HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
SERVICE_NAME, SERVICE_VERSION, SERVICE_INSTANCE = "service.name", "service.version", "service.instance.id"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK_S = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"

OUTCOME = "isthmus.outcome"
CODE = "isthmus.code"
DECISION_ID = "isthmus.decision_id"
CLASS, CLASS_FOUND, SCAN_COMPLETE = "isthmus.class", "isthmus.class_found", "isthmus.scan.complete"
FINDINGS = "isthmus.scan.findings"
ACTION, MODE, REASON, RULE, POLICY = (f"isthmus.{name}" for name in ("action", "mode", "reason", "rule", "policy"))
CANDIDATES, REJECTED = "isthmus.candidates", "isthmus.rejected"
TIER, ZONE, BACKEND = "isthmus.tier", "isthmus.zone", "isthmus.backend_id"
ATTEMPTS, RESUMED = "isthmus.attempts", "isthmus.resumed"
ATTEMPT, ATTEMPT_KIND = "isthmus.attempt.number", "isthmus.attempt.kind"
SLOTS = "isthmus.slots"

_OURSELVES = "isthmus"
_OPERATIONS = {
    Endpoint.COMPLETIONS.value: "text_completion",
    Endpoint.EMBEDDINGS.value: "embeddings",
    "/api/generate": "text_completion",
}


def operation_of(route: str) -> str:
    """`gen_ai.operation.name` of a route that asks a model."""
    return _OPERATIONS.get(route, "chat")


def span_name(endpoint: str, model: str | None) -> str:
    """The name of a span that asks a model: `{gen_ai.operation.name} {gen_ai.request.model}`."""
    return f"{operation_of(endpoint)} {model}" if model else operation_of(endpoint)


def http_facts(method: str, route: str) -> dict[str, Fact]:
    """What is known as a request comes in."""
    return {HTTP_METHOD: method, HTTP_ROUTE: route, OPERATION: operation_of(route)}


def asked_facts(endpoint: str, model: str | None, *, stream: bool, url: str | None = None) -> dict[str, Fact]:
    """What is known as a model is asked."""
    facts: dict[str, Fact] = {
        OPERATION: operation_of(endpoint),
        PROVIDER: _OURSELVES,
        REQUEST_MODEL: model,
        REQUEST_STREAM: stream or None,  # asked for only where it is set
    }
    if url is not None:
        parts = urlsplit(url)
        facts[SERVER_ADDRESS] = parts.hostname
        facts[SERVER_PORT] = parts.port or (443 if parts.scheme == "https" else 80)
    return facts


def answered_facts(
    *,
    model: str | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    finish_reasons: Sequence[str] = (),
    first_chunk_s: float | None = None,
) -> dict[str, Fact]:
    """What is known once a model has answered."""
    return {
        RESPONSE_MODEL: model,
        INPUT_TOKENS: input_tokens,
        OUTPUT_TOKENS: output_tokens,
        FINISH_REASONS: tuple(finish_reasons) or None,
        FIRST_CHUNK_S: first_chunk_s,
    }
