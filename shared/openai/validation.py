"""Checks a parsed body against its route and turns the first fault into one error that names the field."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shared.errors import InvalidRequest
from shared.openai.facts import Endpoint
from shared.openai.other_apis import MessagesRequest, ResponsesRequest
from shared.openai.wire import ChatRequest, CompletionRequest, EmbeddingRequest, FieldError

MODELS: dict[Endpoint, type[BaseModel]] = {
    Endpoint.CHAT: ChatRequest,
    Endpoint.COMPLETIONS: CompletionRequest,
    Endpoint.EMBEDDINGS: EmbeddingRequest,
    Endpoint.RESPONSES: ResponsesRequest,
    Endpoint.MESSAGES: MessagesRequest,
}


def validate(endpoint: Endpoint, body: dict[str, Any]) -> None:
    """Check `body` for `endpoint`.

    Raises:
        InvalidRequest: `param` is the path of the field, such as `messages[0].content`; no value is echoed.
    """
    try:
        MODELS[endpoint].model_validate(body)
    except ValidationError as error:
        raise fault_in(body, error) from None


def fault_in(body: dict[str, Any], error: ValidationError) -> InvalidRequest:
    """The one fault of `body` that says most, as an error that names its field and echoes no value."""
    # The deepest one does: a union reports its simpler branches too. Of a list that is too long they name an entry.
    details = max(
        error.errors(include_url=False, include_input=False),
        key=lambda e: (e["type"] == "too_long", len(_path(body, e))),
    )
    return InvalidRequest(_message(details), param=_param(body, details))


def _path(body: dict[str, Any], details: ErrorDetails) -> list[str | int]:
    """The part of pydantic's location that exists in `body` (it also lists names of union branches)."""
    node: Any = body
    path: list[str | int] = []
    for index, part in enumerate(details["loc"]):
        last = index == len(details["loc"]) - 1
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):  # a branch name of pydantic's, or the field that is missing
            if not (last and details["type"] == "missing"):
                continue
        path.append(part)
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, FieldError):
        path.append(cause.field)
    elif details["type"] in ("union_tag_not_found", "union_tag_invalid"):
        path.append(details.get("ctx", {}).get("discriminator", "").strip("'"))
    return path


_WHOLE_FIELDS = frozenset({"logit_bias", "response_format"})
"""Fields named as a whole: below them stand keys that the caller chose, which an error must not echo."""


def _param(body: dict[str, Any], details: ErrorDetails) -> str | None:
    path = _path(body, details)
    if path and path[0] in _WHOLE_FIELDS:
        return str(path[0])
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or None


def _message(details: ErrorDetails) -> str:
    if details["type"] in ("value_error", "assertion_error"):
        return f"Invalid value: {details['ctx']['error']}."
    if details["type"] == "missing":
        return "A required field is missing."
    if details["type"] in ("union_tag_not_found", "union_tag_invalid"):
        expected = details.get("ctx", {}).get("expected_tags")
        return f"Must be one of {expected}." if expected else "A required field is missing."
    return f"Invalid value: {details['msg'][0].lower()}{details['msg'][1:]}."
