"""The one exception tree of Isthmus: what went wrong, whose fault it is, and what a client is told.

    IsthmusError
    ├── ClientError            the request is at fault: 4xx, never retried, never opens a breaker
    │   ├── InvalidRequest 400  ├── ContextLengthExceeded 400  ├── Unauthenticated 401  ├── Forbidden 403
    │   └── PolicyBlocked 403, NotFound 404, OutOfOrder 409, PayloadTooLarge 413, UnsupportedMediaType 415
    ├── CapacityError          nothing is at fault, there is no room now: 503 + Retry-After
    │   ├── NoCapacity  ├── PrivacyUnavailable  ├── QueueFull  ├── NotReady  ├── Draining
    │   └── RateLimited, Overloaded 429: a quota is used up, the replicas of one model are busy
    ├── BackendError           a backend failed: 502 or 504
    │   ├── BackendUnreachable  ├── BackendTimeout  ├── BackendStatus  └── StreamBroken
    ├── TrustError             bytes that nobody vouched for, or that are not what they claim to be
    │   ├── ModelCorrupt  ├── UnsupportedArchitecture  ├── NotABaseModel  ├── DigestMismatch  ├── FileMissing
    │   ├── FileUnexpected  ├── LinkRefused  ├── Downgrade  ├── Unsigned  ├── UntrustedKey
    │   └── SignatureInvalid, ChannelRejected, TokenizerMismatch, AdapterRejected
    ├── PackageInUse, SourceUnavailable    a package is held by a running program, or could not be fetched
    ├── StateUnavailable, StartFailed      a store does not answer; a started program ended or never became ready
    └── SettingsError          the operator's configuration or machine is at fault
        └── InsufficientMemory    the plan needs more memory than is free

Every error is picklable (it crosses Ray and multiprocessing boundaries) and holds no prompt text, key or
matched value: `param` names the field at fault, never its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self


class IsthmusError(Exception):
    """Base of all errors raised on purpose.

    Class attributes give the HTTP `status`, the OpenAI error `type`, the default machine `code`, and the `exit_code` of
    a command that ends with it; `details` are further figures for the error object.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str] = "internal_error"
    exit_code: ClassVar[int] = 1
    details: Mapping[str, int] = {}

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.default_code
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(cls: type[IsthmusError], message: str, state: dict[str, Any]) -> IsthmusError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


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
    """The key is known but lacks the scope (403)."""

    status = 403
    type = "permission_error"
    default_code = "insufficient_scope"


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


class CapacityError(IsthmusError):
    """There is no room at the moment; `retry_after_s` says when to ask again (503)."""

    status = 503
    type = "capacity_error"
    default_code = "no_capacity"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = 1,
    ) -> None:
        super().__init__(message, param=param, code=code, retry_after_s=retry_after_s)


class NoCapacity(CapacityError):
    """No eligible backend."""


class PrivacyUnavailable(CapacityError):
    """Privacy removed every backend that had room; the request was not sent anywhere else."""

    default_code = "privacy_unavailable"


class QueueFull(CapacityError):
    """All slots are busy and the bounded queue is full."""

    default_code = "queue_full"


class NotReady(CapacityError):
    """The engine is starting or restarting."""

    default_code = "not_ready"


class Draining(CapacityError):
    """The process is shutting down and takes no new work."""

    default_code = "draining"


class RateLimited(CapacityError):
    """Every backend that may serve this is cooling down after a 429; `retry_after_s` is what remains (429)."""

    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"


class Overloaded(CapacityError):
    """The replicas of a model are busy and their queue is full (429): this model alone, not the whole backend."""

    status = 429
    default_code = "queue_full"


class BackendError(IsthmusError):
    """A backend did not do its part (502)."""

    status = 502
    type = "backend_error"
    default_code = "backend_error"


class BackendUnreachable(BackendError):
    """Connection refused, reset before an answer, or name not resolved."""

    default_code = "backend_unreachable"


class BackendTimeout(BackendError):
    """One of the three limits passed: `phase` is connect, first_token or idle (504)."""

    status = 504
    default_code = "backend_timeout"

    def __init__(self, message: str, *, phase: str, code: str | None = None) -> None:
        super().__init__(message, code=code or f"{phase}_timeout")
        self.phase = phase


class BackendStatus(BackendError):
    """A backend answered with a status that is not success; `backend_status` keeps it."""

    default_code = "backend_status"

    def __init__(
        self, message: str, *, backend_status: int, code: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message, code=code, retry_after_s=retry_after_s)
        self.backend_status = backend_status


class StreamBroken(BackendError):
    """A stream ended without its end marker, or carried an error event."""

    default_code = "stream_broken"


class TrustError(IsthmusError):
    """A package is not what it claims to be; nothing of it was loaded."""

    default_code = "untrusted"
    exit_code = 10


class ModelCorrupt(TrustError):
    """Structure or size contradicts the file's own header."""

    default_code = "model_corrupt"
    exit_code = 10


class UnsupportedArchitecture(TrustError):
    """The file is whole, but no engine here runs this architecture."""

    default_code = "unsupported_architecture"
    exit_code = 11


class NotABaseModel(TrustError):
    """An adapter or a vocabulary file was offered as a model."""

    default_code = "not_a_base_model"
    exit_code = 12


class DigestMismatch(TrustError):
    """The bytes do not hash to the digest that was pinned for them."""

    default_code = "digest_mismatch"
    exit_code = 13


class FileMissing(TrustError):
    """A file that the manifest states is not there."""

    default_code = "file_missing"
    exit_code = 14


class FileUnexpected(TrustError):
    """There is a file that the manifest does not state, or that is no regular file."""

    default_code = "file_unexpected"
    exit_code = 15


class LinkRefused(TrustError):
    """A package holds a symbolic link: what it leads to can change without the package."""

    default_code = "link_refused"
    exit_code = 16


class Downgrade(TrustError):
    """The release is older than the one installed, or its number stands for other bytes."""

    default_code = "downgrade"
    exit_code = 17


class UntrustedKey(TrustError):
    """The package is signed, by keys that are not trusted here."""

    default_code = "untrusted_key"
    exit_code = 18


class Unsigned(TrustError):
    """The package is not signed, and a signature is asked for."""

    default_code = "unsigned"
    exit_code = 19


class SignatureInvalid(TrustError):
    """A signature is not over the bytes it stands beside."""

    default_code = "signature_invalid"
    exit_code = 20


class ChannelRejected(TrustError):
    """A release channel's metadata is expired, older than what was seen, or not signed by its keys."""

    default_code = "channel_rejected"
    exit_code = 21


class TokenizerMismatch(TrustError):
    """Packages of one model on two tiers turn text into tokens differently."""

    default_code = "tokenizer_mismatch"
    exit_code = 22


class AdapterRejected(TrustError):
    """An adapter is none, or none for its base model; `code` says which."""

    status = 400
    type = "invalid_request_error"
    default_code = "adapter_rejected"
    exit_code = 25


class PackageInUse(IsthmusError):
    """A running program uses the package; it was not removed."""

    status = 409
    default_code = "package_in_use"
    exit_code = 23


class SourceUnavailable(IsthmusError):
    """A package could not be fetched from where it is kept; nothing was installed."""

    status = 502
    default_code = "source_unavailable"
    exit_code = 24


class StateUnavailable(IsthmusError):
    """The state store did not answer within its limit; callers go on with what they last knew."""

    status = 503
    default_code = "state_unavailable"


class StartFailed(IsthmusError):
    """A program that was started to serve ended, or was not ready within its limit."""

    default_code = "start_failed"


class SettingsError(IsthmusError):
    """Configuration, environment or machine does not allow the start; `param` names the setting."""

    default_code = "settings"
    exit_code = 2


class InsufficientMemory(SettingsError):
    """A plan needs more memory than is free; both figures are stated in bytes."""

    default_code = "insufficient_memory"

    def __init__(self, message: str, *, needed_bytes: int, free_bytes: int) -> None:
        super().__init__(message, param="memory")
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
