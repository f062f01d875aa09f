"""The root of the exception tree: what every error of Isthmus says of itself, and how it crosses processes."""

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
        self.is_final = False
        """Whether the same request would be refused again, however long one waits."""

    def for_good(self) -> Self:
        """This error, as the answer to what no wait helps: there is no time at which asking again may be worth it."""
        self.is_final, self.retry_after_s = True, None
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(cls: type[IsthmusError], message: str, state: dict[str, Any]) -> IsthmusError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error
