"""Turns a backend's error answer into what a client may see: status and code kept, foreign words left out.

Error texts of engines and their ingress quote internals (classes, paths, request ids) and at times the input. Only
texts that this module writes itself, or that come from an edge agent of ours in the OpenAI envelope, go on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from router.dispatch.verdict import Outcome, outcome_of_status

MAX_ERROR_BYTES = 64 * 1024
_MAX_MESSAGE_CHARS = 500
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_PARAM = re.compile(r"[A-Za-z_][A-Za-z0-9_.\[\]]{0,127}\Z")
_NUMBER = re.compile(r"\d{1,9}")
_TOO_LONG = re.compile(r"maximum context length|context_length_exceeded|context window|too large: \d", re.IGNORECASE)
_LIMIT = re.compile(r"(?:maximum|max(?:imum)?) (?:context|model) length(?: is| of)? (\d{1,9})", re.IGNORECASE)
_ASKED = re.compile(
    r"(?:requested|has|contains|resulted in|needs) (?:about )?(\d{1,9})(?: output| input)? tokens", re.IGNORECASE
)
_TYPES = frozenset(
    {"invalid_request_error", "authentication_error", "permission_error", "not_found_error", "rate_limit_error",
     "capacity_error", "server_error", "backend_error"}
)  # fmt: skip
_MESSAGES = {
    400: "The backend found the request invalid.",
    401: "The backend did not accept the router's credentials.",
    403: "The backend refused the request.",
    404: "The backend does not know this model or route.",
    408: "The backend gave up waiting.",
    413: "The request is too large for the backend.",
    415: "The backend does not accept this kind of body.",
    422: "The backend found the request invalid.",
    429: "The backend asks to slow down.",
    529: "The backend is overloaded.",
}
_KINDS = {401: "backend_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {
    400: "invalid_request",
    404: "not_found",
    408: "backend_timeout",
    413: "payload_too_large",
    422: "invalid_request",
    429: "rate_limit_exceeded",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer, ready for the client, and what it means for the dispatch."""

    status: int
    body: bytes
    code: str
    outcome: Outcome
    retry_after: str | None = None
    is_final: bool = False
    """Whether the backend says that no wait helps."""


def read_refusal(
    status: int, raw: bytes, *, retry_after: str | None, own_words: bool, is_final: bool = False
) -> Refusal:
    """The refusal in an answer with `status`; `own_words` says that the sender is an edge agent."""
    error = _error_of(raw)
    code = _code_of(status, error)
    client_status = 502 if status == 401 else status  # the router's key was refused, not the client's
    content = {
        "message": _message(status, code, error, own_words),
        "type": _type_of(status, error),
        "param": _param_of(error),
        "code": code,
    }
    return Refusal(
        status=client_status,
        body=orjson.dumps({"error": content}),
        code=code,
        outcome=outcome_of_status(status, code=code, has_retry_after=retry_after is not None, from_agent=own_words),
        retry_after=retry_after,
        is_final=is_final,
    )


def _error_of(raw: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(value, dict):
        return {}
    error = value.get("error", value)  # older vLLM answers without the outer object; Ray Serve as {"detail": …}
    return error if isinstance(error, dict) else {"message": error}


def _code_of(status: int, error: dict[str, Any]) -> str:
    message = error.get("message")
    if status == 400 and isinstance(message, str) and _TOO_LONG.search(message):
        return "context_length_exceeded"
    code = error.get("code")
    if isinstance(code, str) and _CODE.match(code):
        return code
    if status == 404 and ("detail" in error or error.get("type") in ("NotFoundError", "model_not_found")):
        return "model_not_found"
    return _CODES.get(status, "backend_error")


def _type_of(status: int, error: dict[str, Any]) -> str:
    kind = error.get("type")
    if kind in _TYPES:
        return str(kind)
    return _KINDS.get(status) or ("invalid_request_error" if status < 500 else "backend_error")


def _param_of(error: dict[str, Any]) -> str | None:
    param = error.get("param")
    return param if isinstance(param, str) and _PARAM.match(param) else None


def _message(status: int, code: str, error: dict[str, Any], own_words: bool) -> str:
    message = error.get("message")
    if own_words and isinstance(message, str) and error.get("type") in _TYPES:
        return message[:_MAX_MESSAGE_CHARS]
    if code == "context_length_exceeded" and isinstance(message, str):
        return _length_message(message)
    return _MESSAGES.get(status, "The backend failed." if status >= 500 else "The backend refused the request.")


def _length_message(message: str) -> str:
    """Our sentence with the backend's two numbers, which are all that is worth keeping of its own."""
    limit = _LIMIT.search(message)
    rest = message[: limit.start()] + message[limit.end() :] if limit else message
    asked = _ASKED.search(rest) or _NUMBER.search(rest)
    if limit is None or asked is None:
        return "The request does not fit the context of the backend."
    number = asked.group(asked.lastindex or 0)
    return f"The context of the backend is {limit.group(1)} tokens; the request has {number}."
