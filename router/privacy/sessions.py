"""What is remembered of a conversation between its turns: the strictest class so far, and its placeholders.

Both live in memory alone and end after a time of silence. A session belongs to one caller: the same id under another
key is another session, so no caller's values can come back to another.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from router.privacy.placeholders import Placeholders, Room
from shared.clock import Clock
from shared.privacy import PrivacyClass, strictest

VALUE_CHARS = 64 * 1024 * 1024
"""Characters of the values of all sessions together; beyond it nothing more is masked, and stays on the edge."""

PinExchange = Callable[[bytes, PrivacyClass], Awaitable[PrivacyClass]]


@dataclass(slots=True)
class Session:
    """One conversation. `pin` only ever becomes stricter."""

    pin: PrivacyClass = PrivacyClass.PUBLIC
    placeholders: Placeholders = field(default_factory=Placeholders, repr=False)
    used_ms: int = 0
    name: bytes | None = None
    """The digest of its id; None for a session of one request alone."""

    def tighten(self, found: PrivacyClass) -> None:
        """Remember `found` if it is stricter than what is remembered."""
        self.pin = strictest(self.pin, found)


class Sessions:
    """All sessions of this router; the longest silent one makes room for a new one."""

    def __init__(
        self, clock: Clock, key: bytes, *, ttl_s: float, limit: int, elsewhere: PinExchange | None = None
    ) -> None:
        """Ids are kept as digests under `key`. `limit` bounds the number of sessions. `elsewhere` takes a digest and
        the class that is found now, and gives the class that other processes hold the session to."""
        self._elsewhere = elsewhere
        self._clock = clock
        self._key = key
        self._ttl_ms = int(ttl_s * 1000)
        self._limit = limit
        self._room = Room(VALUE_CHARS)
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, session_id: str | None, caller: str | None) -> Session:
        """The session with that id of that caller, made if need be; without an id, one for this request alone."""
        if session_id is None:
            return Session()
        name = self._name(session_id, caller)
        now_ms = self._clock.now_ms()
        self._drop_silent(now_ms)
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(placeholders=Placeholders(self._room), name=name)
        session.used_ms = now_ms
        self._sessions.move_to_end(name)
        while len(self._sessions) > self._limit:
            self._drop_oldest()
        return session

    def pin_of(self, session_id: str | None, caller: str | None) -> PrivacyClass:
        """The class that the session is held to, without touching it."""
        session = None if session_id is None else self._sessions.get(self._name(session_id, caller))
        if session is None or self._clock.now_ms() - session.used_ms > self._ttl_ms:
            return PrivacyClass.PUBLIC
        return session.pin

    async def settle_pin(self, session: Session, found: PrivacyClass) -> None:
        """Learn what other processes hold this session to, and tell them of `found`."""
        if self._elsewhere is not None and session.name is not None:
            session.tighten(await self._elsewhere(session.name, found))

    def _name(self, session_id: str, caller: str | None) -> bytes:
        message = f"{caller or ''}\0{session_id}".encode()
        return hmac.new(self._key, message, hashlib.sha256).digest()[:16]

    def _drop_silent(self, now_ms: int) -> None:
        while self._sessions and now_ms - next(iter(self._sessions.values())).used_ms > self._ttl_ms:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, session = self._sessions.popitem(last=False)
        self._room.give_back(session.placeholders.chars)
