"""A document that all routers of a fleet agree upon over Redis.

A change is made only to the revision that it was based on. Each router keeps the last agreed one in its own file, so
that neither a Redis that lost its memory nor one that is away loses the document.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Generic

from shared import logs
from shared.errors import StateUnavailable
from shared.state.link import ONLY_PRIMARY, RedisLink, Script
from shared.state.register import D, FileRegister, written

# KEYS: the document. ARGV: its revision here, the document, the revision it may replace. Returns the revision that is
# kept, and the document where that is another one's.
_AGREE = Script("""
local kept = tonumber(redis.call('HGET', KEYS[1], 'revision') or '-1')
if kept > tonumber(ARGV[3]) then return {kept, redis.call('HGET', KEYS[1], 'document')} end
redis.call('HSET', KEYS[1], 'revision', ARGV[1], 'document', ARGV[2])
return {tonumber(ARGV[1]), false}
""")
# ARGV: the revision here, whether of a primary alone. Returns the revision that is kept, and the document where that is
# a newer one.
_LOOK = Script(
    ONLY_PRIMARY
    + """
local kept = tonumber(redis.call('HGET', KEYS[1], 'revision') or '-1')
if kept > tonumber(ARGV[1]) then return {kept, redis.call('HGET', KEYS[1], 'document')} end
return {kept, false}
"""
)
_TRIES = 10


class AgreedRegister(Generic[D]):
    """One document for all routers of a fleet, in Redis; each keeps the last one it saw in its own file."""

    def __init__(self, own: FileRegister[D], link: RedisLink, key: str) -> None:
        self._own = own
        self._link = link
        self._keys = [key]
        self._log = logs.get("register")

    @property
    def content(self) -> D:
        return self._own.content

    async def update(self, change: Callable[[D], D]) -> D:
        for _ in range(_TRIES):
            await self._agree()
            base = self._own.content
            changed = replace(change(base), revision=base.revision + 1)
            arguments: list[bytes | int] = [changed.revision, written(changed), base.revision]
            kept, newer = await self._link.run(_AGREE, self._keys, arguments)
            if newer is None and kept == changed.revision:
                self._own.keep(changed)
                return changed
        raise StateUnavailable("Others change this at the same time; try again.")

    async def refresh(self) -> None:
        with contextlib.suppress(StateUnavailable):  # the last agreed one stands
            await self._agree()

    async def _agree(self) -> None:
        base = self._own.content
        kept, newer = await self._link.look(_LOOK, self._keys, [base.revision])
        if newer is not None:
            self._own.keep(self._own.parsed(newer))
        elif kept < base.revision:
            await self._link.run(_AGREE, self._keys, [base.revision, written(base), base.revision - 1])
            self._log.warning("register_restored", revision=base.revision)
