"""Nothing is at fault, there is no room now: 503 or 429, and when to ask again."""

from __future__ import annotations

from shared.errors.base import IsthmusError


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
