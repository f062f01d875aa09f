"""What is remembered of a conversation between its turns: the strictest class so far, and its placeholders.

Both live in memory alone and end after a time of silence. A session belongs to one caller: the same id under another
key is another session, so no caller's values can come back to another. Where several processes serve one port, their
parent holds the sessions of all, and each keeps what it has learned of them.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Protocol

from router.privacy.placeholders import Placeholders, Room, Source
from shared.clock import Clock
from shared.privacy import PrivacyClass, strictest

VALUE_CHARS = 64 * 1024 * 1024
"""Characters of the values of all sessions together; beyond it nothing more is masked, and stays on the edge."""


class Elsewhere(Protocol):
    """Who holds sessions for several processes. A session is named by its digest."""

    async def pinned(self, session: bytes, tighten: PrivacyClass) -> PrivacyClass:
        """The class that the session was held to before; from now on at least `tighten`."""

    async def pin_of(self, session: bytes) -> PrivacyClass:
        """The class that the session is held to, without touching it."""

    def placeholders(self, session: bytes, room: Room) -> Source:
        """The placeholders of the session; what is learned of them takes `room`."""


@dataclass(slots=True)
class Session:
    """One conversation. `pin` only ever becomes stricter."""

    pin: PrivacyClass = PrivacyClass.PUBLIC
    placeholders: Placeholders = field(default_factory=Placeholders, repr=False)
    used_ms: int = 0
    name: bytes | None = None
    """The digest of its id; None for a session of one request alone."""
    number: int = 0
    """Tells it from the one of the same name that was forgotten before it."""
    elsewhere: Source | None = field(default=None, repr=False)
    """Where its placeholders come from, if not from here."""

    @property
    def source(self) -> Source:
        """Where its placeholders come from."""
        return self.placeholders if self.elsewhere is None else self.elsewhere

    def tighten(self, found: PrivacyClass) -> None:
        """Remember `found` if it is stricter than what is remembered."""
        self.pin = strictest(self.pin, found)


class Sessions:
    """All sessions of this router; the longest silent one makes room for a new one."""

    def __init__(
        self, clock: Clock, key: bytes, *, ttl_s: float, limit: int, elsewhere: Elsewhere | None = None
    ) -> None:
        """Ids are kept as digests under `key`. `limit` bounds the number of sessions. `elsewhere` holds them for
        several processes, of which this is one."""
        self._elsewhere = elsewhere
        self._clock = clock
        self._key = key
        self._ttl_ms = int(ttl_s * 1000)
        self._limit = limit
        self._room = Room(VALUE_CHARS)
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, session_id: str | None, caller: str | None) -> Session:
        """The session with that id of that caller, made if need be; without an id, one for this request alone."""
        if session_id is None:
            return Session()
        return self.named(self._name(session_id, caller))

    def named(self, name: bytes) -> Session:
        """The session with that digest, made if need be."""
        now_ms = self._clock.now_ms()
        self._drop_silent(now_ms)
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = self._new(name)
        session.used_ms = now_ms
        self._sessions.move_to_end(name)
        while len(self._sessions) > self._limit:
            self._drop_oldest()
        return session

    async def pin_of(self, session_id: str | None, caller: str | None) -> PrivacyClass:
        """The class that the session is held to, here or in another process, without touching it.

        Raises:
            StateUnavailable: who holds it for all processes does not answer.
        """
        if session_id is None:
            return PrivacyClass.PUBLIC
        name = self._name(session_id, caller)
        own = self.pin_of_named(name)
        return own if self._elsewhere is None else strictest(own, await self._elsewhere.pin_of(name))

    def pin_of_named(self, name: bytes) -> PrivacyClass:
        """The class that the session with that digest is held to here, without touching it."""
        session = self._sessions.get(name)
        if session is None or self._clock.now_ms() - session.used_ms > self._ttl_ms:
            return PrivacyClass.PUBLIC
        return session.pin

    async def settle_pin(self, session: Session, found: PrivacyClass) -> None:
        """Learn what other processes hold this session to, and tell them of `found`."""
        if self._elsewhere is not None and session.name is not None:
            session.tighten(await self._elsewhere.pinned(session.name, found))

    def _new(self, name: bytes) -> Session:
        source = None if self._elsewhere is None else self._elsewhere.placeholders(name, self._room)
        return Session(placeholders=Placeholders(self._room), name=name, number=next(self._numbers), elsewhere=source)

    def _name(self, session_id: str, caller: str | None) -> bytes:
        message = f"{caller or ''}\0{session_id}".encode()
        return hmac.new(self._key, message, hashlib.sha256).digest()[:16]

    def _drop_silent(self, now_ms: int) -> None:
        while self._sessions and now_ms - next(iter(self._sessions.values())).used_ms > self._ttl_ms:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, session = self._sessions.popitem(last=False)
        self._room.give_back(session.source.chars)
