"""Sessions of several workers: the parent holds the strictest class of each and gives out its placeholders.

Two turns of one session may meet different workers, even at the same time. Names are therefore given out in one place,
in the order in which they are asked for; a worker learns what it does not know yet, and holds values in memory alone,
as the parent does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from router.privacy.placeholders import Entry, Placeholders, Room, TooManyValues, names_said
from router.privacy.sessions import Sessions
from shared.privacy import PrivacyClass


class Asking(Protocol):
    """The way to the parent."""

    async def ask(self, what: str, value: Any = None) -> Any:
        """Its answer. Raises StateUnavailable: it is gone."""


class MemberSessions:
    """A worker's side."""

    def __init__(self, parent: Asking) -> None:
        self._parent = parent

    async def pinned(self, session: bytes, tighten: PrivacyClass) -> PrivacyClass:
        """As `Elsewhere`."""
        return PrivacyClass(await self._parent.ask("pin", {"session": session.hex(), "class": tighten}))

    async def pin_of(self, session: bytes) -> PrivacyClass:
        """As `Elsewhere`."""
        return PrivacyClass(await self._parent.ask("pin_of", session.hex()))

    def placeholders(self, session: bytes, room: Room) -> SharedPlaceholders:
        """As `Elsewhere`."""
        return SharedPlaceholders(self._parent, session, room)


class SharedPlaceholders:
    """What a worker knows of the placeholders of one session."""

    def __init__(self, parent: Asking, session: bytes, room: Room) -> None:
        self._parent = parent
        self._session = session.hex()
        self._room = room
        self._number = 0
        self._known = Placeholders(room, gives=False)
        self._asking = asyncio.Lock()

    @property
    def chars(self) -> int:
        return self._known.chars

    async def prepared(self, texts: Iterable[str], wanted: Sequence[tuple[str, str]]) -> Placeholders:
        """As `Source`."""
        said = sorted(names_said(texts))
        # One at a time, so that what is known here is always a beginning of what the parent knows.
        async with self._asking:
            asked = {"session": self._session, "number": self._number, "known": len(self._known)}
            told = await self._parent.ask("stand_in", {**asked, "said": said, "wanted": wanted})
            if told["number"] != self._number:
                # The parent had forgotten the session, and its names begin anew. Answers under way keep the old map.
                self._room.give_back(self._known.chars)
                self._number, self._known = told["number"], Placeholders(self._room, gives=False)
            for entry in told["entries"]:
                self._known.learn(Entry(*entry))
        if told["full"]:
            raise TooManyValues
        return self._known


class ParentSessions:
    """The parent's side: answers of one value each, as JSON values."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def pin(self, value: dict[str, str]) -> PrivacyClass:
        """The class that the session was held to before; from now on at least the one that is told."""
        session = self._sessions.named(bytes.fromhex(value["session"]))
        before = session.pin
        session.tighten(PrivacyClass(value["class"]))
        return before

    async def pin_of(self, session: str) -> PrivacyClass:
        """The class that the session is held to, without touching it."""
        return self._sessions.pin_of_named(bytes.fromhex(session))

    async def stand_in(self, value: dict[str, Any]) -> dict[str, Any]:
        """What the worker does not know of the session's placeholders, once there is one for all that is wanted."""
        session = self._sessions.named(bytes.fromhex(value["session"]))
        placeholders, full = session.placeholders, False
        try:
            placeholders.reserve(value["said"])
            for kind, text in value["wanted"]:
                placeholders.stand_in(kind, text)
        except TooManyValues:
            full = True
        known = value["known"] if value["number"] == session.number else 0
        return {"number": session.number, "entries": list(map(list, placeholders.entries(known))), "full": full}
