"""The request is at fault: 4xx, never retried, never opens a breaker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from shared.errors.base import IsthmusError


class ClientError(IsthmusError):
    """The request cannot be served as it is; the same request will fail again."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_request"


class InvalidRequest(ClientError):
    """A field is missing, malformed or out of range (400)."""

    exit_code = 2


class ContextLengthExceeded(ClientError):
    """Prompt and output do not fit the context of any allowed backend (400); both numbers are stated."""

    default_code = "context_length_exceeded"

    @classmethod
    def of(cls, *, needed_tokens: int, limit_tokens: int, param: str, prompt_tokens: int | None = None) -> Self:
        """The error for a request of `needed_tokens`, of them `prompt_tokens`, where `limit_tokens` at most fit."""
        share = "" if prompt_tokens is None else f" ({prompt_tokens} in the prompt)"
        return cls(
            f"This request needs {needed_tokens} tokens{share}; the largest allowed context is {limit_tokens} tokens.",
            param=param,
        )


class Unauthenticated(ClientError):
    """No key, a malformed header, or an unknown key (401)."""

    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"


class Forbidden(ClientError):
    """The caller may not do this: its key lacks the scope, or a page of another site made a browser send it (403)."""

    status = 403
    type = "permission_error"
    default_code = "insufficient_scope"


class MethodNotAllowed(ClientError):
    """There is such a route, for other methods (405); `allowed` are these."""

    status = 405
    default_code = "method_not_allowed"
    allowed: tuple[str, ...] = ()

    @classmethod
    def of(cls, methods: Iterable[str]) -> Self:
        """The error for a route that takes `methods`."""
        allowed = tuple(sorted(methods))
        error = cls(f"This route takes {', '.join(allowed)}.")
        error.allowed = allowed
        return error


class PolicyBlocked(ClientError):
    """Policy refuses this content on every tier (403)."""

    status = 403
    type = "permission_error"
    default_code = "blocked_by_policy"


class NotFound(ClientError):
    """No such route, model or adapter (404)."""

    status = 404
    default_code = "not_found"


class OutOfOrder(ClientError):
    """A report that is older than what is known already (409)."""

    status = 409
    default_code = "out_of_order"


class PayloadTooLarge(ClientError):
    """The body is over the byte limit (413)."""

    status = 413
    default_code = "payload_too_large"


class UnsupportedMediaType(ClientError):
    """Content type or encoding that is not JSON (415)."""

    status = 415
    default_code = "unsupported_media_type"


class ExpectationFailed(ClientError):
    """An `Expect` header that asks for anything but `100-continue` (417)."""

    status = 417
    default_code = "expectation_failed"
