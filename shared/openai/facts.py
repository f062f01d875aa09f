"""What a decision needs to know of a request: numbers and names, never its text."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

_BYTES_PER_TOKEN = 3
"""Bytes of UTF-8 a token covers at least on average in prose of SmolLM2, Llama 3 and Qwen tokenizers. The estimate
only orders backends; whether a prompt fits is the backend's own count (see `context_length_exceeded`)."""

OWN_FEATURES = frozenset({"continuation", "lora"})
"""Features whose fields are not OpenAI's: a server that does not know them ignores them without a word."""
FEATURES = ("tools", "structured_output", "logprobs", *sorted(OWN_FEATURES))
"""What a request may need of a backend beyond plain text."""

_ASKING = frozenset({"tools", "response_format", "text", "logprobs", "continue_final_message", "lora"})
"""Fields that may ask for one."""
_NOTHING: frozenset[str] = frozenset()


class Endpoint(StrEnum):
    """Routes that carry a prompt: OpenAI's, and the messages route that some engines serve beside them."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"


LIMIT_FIELDS: dict[Endpoint, tuple[str, ...]] = {
    Endpoint.CHAT: ("max_completion_tokens", "max_tokens"),
    Endpoint.COMPLETIONS: ("max_tokens",),
    Endpoint.EMBEDDINGS: ("max_tokens",),
    Endpoint.RESPONSES: ("max_output_tokens",),
    Endpoint.MESSAGES: ("max_tokens",),
}
"""Fields that limit an answer; the last one is what a limit is written into where none is given."""
REWRITABLE = frozenset({Endpoint.CHAT, Endpoint.COMPLETIONS})
"""Routes whose answers the router can read text by text: alone there are values masked and answers scanned."""


class RequestFacts(NamedTuple):
    """The measurable side of one request. `max_tokens` is None where the caller set no limit; `max_tokens_field` is the
    field that set it."""

    endpoint: Endpoint
    model: str
    stream: bool
    prompt_tokens_estimate: int
    max_tokens: int | None
    features: frozenset[str]
    max_tokens_field: str = "max_tokens"


def facts_of(endpoint: Endpoint, body: dict[str, Any], *, text_bytes: int) -> RequestFacts:
    """Read the facts of a validated `body` whose texts sum to `text_bytes` bytes of UTF-8."""
    for field in LIMIT_FIELDS[endpoint]:  # the last one is left where none is given
        if body.get(field) is not None:
            break
    return RequestFacts(
        endpoint=endpoint,
        model=body["model"],
        stream=body.get("stream") is True,
        prompt_tokens_estimate=max(1, text_bytes // _BYTES_PER_TOKEN),
        max_tokens=body.get(field),
        features=_NOTHING if _ASKING.isdisjoint(body) else frozenset(_features(body)),
        max_tokens_field=field,
    )


def _features(body: dict[str, Any]) -> list[str]:
    found = []
    if body.get("tools") and body.get("tool_choice") != "none":
        found.append("tools")
    kind = (body.get("response_format") or {}).get("type")
    text = body.get("text")
    if kind is None and isinstance(text, dict):  # the responses API
        kind = (text.get("format") or {}).get("type")
    if kind in ("json_schema", "json_object"):
        found.append("structured_output")
    if body.get("logprobs"):
        found.append("logprobs")
    if body.get("continue_final_message") is True:
        found.append("continuation")
    if body.get("lora"):
        found.append("lora")
    return found
