"""What runs Isthmus is at fault: a store, a program that was started, or the operator's configuration or machine."""

from __future__ import annotations

from shared.errors.base import IsthmusError


class StateUnavailable(IsthmusError):
    """The state store did not answer within its limit; callers go on with what they last knew."""

    status = 503
    default_code = "state_unavailable"


class StateRefused(StateUnavailable):
    """The state store answers and refuses what was asked of it: it is full, or another one's replica."""

    default_code = "state_refused"


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
