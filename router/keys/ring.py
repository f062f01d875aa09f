"""All keys that this router knows now, and whether it asks for one at all."""

from __future__ import annotations

from collections.abc import Sequence

from router.keys.book import KeyBook
from shared.clock import Clock
from shared.errors import Unauthenticated
from shared.keys import ApiKey, authenticate
from shared.state.register import Register


class Keyring:
    """Keys of the settings, and those of the register as they are at this moment."""

    def __init__(
        self,
        fixed: Sequence[ApiKey],
        clock: Clock,
        register: Register[KeyBook] | None = None,
        *,
        local: Sequence[ApiKey] = (),
    ) -> None:
        """`local` keys are taken from within this machine alone, and do not make the router ask for keys."""
        self._local = tuple(local)
        self._fixed = tuple(fixed)
        self._clock = clock
        self._register = register
        self._book = KeyBook()
        self._known = self._fixed

    @property
    def asks(self) -> bool:
        """Whether callers need a key. A router whose last key was revoked asks on: it does not open up."""
        return bool(self._fixed or self._current().keys)

    def known(self) -> tuple[ApiKey, ...]:
        """Every key that may be used, as far as it has not expired."""
        self._current()
        return self._known

    def authenticate(self, values: Sequence[str], *, within_machine: bool = False) -> ApiKey:
        """The key that the `Authorization` headers carry, on a connection that may be `within_machine`.

        Raises:
            Unauthenticated: malformed header, unknown or expired key.
        """
        key = authenticate(values, (*self.known(), *self._local) if within_machine and self._local else self.known())
        if key.expires_unix_s is not None and key.expires_unix_s <= self._clock.unix_s():
            raise Unauthenticated("The API key has expired.", code="expired_api_key")
        return key

    def _current(self) -> KeyBook:
        if self._register is not None and (book := self._register.content) is not self._book:
            self._book, self._known = book, (*self._fixed, *book.usable())
        return self._book
