"""A backend did not do its part: 502 or 504."""

from __future__ import annotations

from shared.errors.base import IsthmusError


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
