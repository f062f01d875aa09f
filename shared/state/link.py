"""One way to Redis for all that is kept there: each call ends within its limit, and a dead Redis is asked rarely.

A command that its caller gives up on still runs to its end by itself (at most the limit), and one that passes the
limit takes its connection with it: no reply can be left unread for the next command to mistake for its own.

Connections are left all together: once one of them got no answer, or reached a server that is no primary, the others
lead to the same place, and a name, a sentinel or a cluster may know a better one by now. Those that are in use end
with the command that uses them. A command that was surely not done is then sent once more; one that may have been
done never is, since limits and leases must not count twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from redis.exceptions import NoScriptError, RedisClusterException, RedisError

from shared.breaker import BreakerRules, CircuitBreaker
from shared.clock import Clock
from shared.errors import SettingsError, StateRefused, StateUnavailable
from shared.state.address import RedisAddress, place_of
from shared.state.client import AT_ONCE, Client, check_certificates, client_of, closed, nodes_of, stamp_of
from shared.state.verdict import verdict_of

COMMAND_LIMIT_S = 0.25
_BREAKER = BreakerRules(failures=2, open_ms=500, max_open_ms=5_000)
_TURNS = replace(_BREAKER, failures=1)
"""How often a server that is no primary is left for what may be another: where there is no other, rarely."""
_ERRORS = (RedisError, RedisClusterException, OSError, TimeoutError)
ONLY_PRIMARY = """
if ARGV[#ARGV] == '1' then redis.call('HDEL', KEYS[1], '') end
"""
"""Begins a script that changes nothing: asked by `RedisLink.look`, it runs where a change would be taken. Its first key
is a hash."""

Argument = str | bytes | int | float


class Script:
    """A Lua script, sent whole only to a server that does not have it yet."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class _Connections:
    """All connections of one time, and how many commands use them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.using = 0
        self.left = False


class RedisLink:
    """Runs scripts. `failures` grows with every call that did not succeed, and `turns` whenever all connections are
    made anew: what was read before may be out of date, or another server's."""

    def __init__(
        self,
        address: RedisAddress,
        clock: Clock,
        *,
        limit_s: float = COMMAND_LIMIT_S,
        setting: str = "router.state.url",
    ) -> None:
        """Raises SettingsError: the address is not valid, or its certificates cannot be used."""
        self._place = place_of(address, setting=setting)
        check_certificates(self._place.tls)
        self._clock = clock
        self._limit_s = limit_s
        self._hosts = self._place.hosts
        self.failures = self.turns = 0
        self._turned_ms = clock.now_ms() - _BREAKER.open_ms
        self._stamp = stamp_of(self._place.tls)
        self._now = self._opened()
        self._breaker = CircuitBreaker(_BREAKER)
        self._turning = CircuitBreaker(_TURNS)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._running: set[asyncio.Task[Any]] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """What `script` returns; all `keys` share one hash tag.

        Raises:
            StateUnavailable: no answer within the limit, or none lately.
            StateRefused: the server cannot do this now, and may do other things.
        """
        if not self._breaker.admit(self._clock.now_ms()):
            self.failures += 1
            raise StateUnavailable("The state store did not answer lately.")
        task = asyncio.create_task(self._bounded(script, keys, arguments))
        self._running.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    async def look(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """As `run`, for a script that begins with `ONLY_PRIMARY`: what the primary says, or, where none is found, what
        a server holds that takes no changes. Readers alone would never learn that theirs is a primary no more."""
        try:
            return await self.run(script, keys, [*arguments, 1])
        except StateRefused:
            return await self.run(script, keys, [*arguments, 0])

    async def close(self) -> None:
        """Wait for what runs, and release connections."""
        if self._running:
            await asyncio.wait(self._running)
        await closed(self._now.client)
        if self._ending:
            await asyncio.wait(self._ending)

    async def _bounded(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        at = self._now
        try:
            async with asyncio.timeout(self._limit_s), self._room:
                self._renew()
                answer = await self._asked(script, keys, arguments)
        except _ERRORS as error:
            raise self._failed(error, at) from None
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return answer

    def _failed(self, error: Exception, at: _Connections) -> StateUnavailable:
        """Take note of how a command ended that began while connections were those `at` that time."""
        verdict, name = verdict_of(error), type(error).__name__
        if verdict.serves:
            # A full server, say, still tells what it holds, and what was read before is as good as it was.
            self._breaker.succeeded()
            return StateRefused(f"The state store refuses this ({name}).")
        self.failures += 1
        self._breaker.failed(self._clock.now_ms())
        if not verdict.undone and self._clock.now_ms() - self._turned_ms >= _BREAKER.open_ms:
            # The others lead to the same place. A server that is slow now and then is not kept busy with connections.
            self._leave(at)
        return StateUnavailable(f"The state store did not answer ({name}).")

    async def _asked(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """The answer; of another server, where the first surely did nothing and there may be another."""
        at = self._now
        try:
            return await self._sent(at, script, keys, arguments)
        except _ERRORS as error:
            if not verdict_of(error).undone or not self._turned(at):
                raise
        try:
            answer = await self._sent(self._now, script, keys, arguments)
        except _ERRORS:
            self._turning.failed(self._clock.now_ms())
            raise
        except BaseException:
            self._turning.abandoned()
            raise
        self._turning.succeeded()
        return answer

    def _turned(self, at: _Connections) -> bool:
        """Whether there are other connections than those `at` the server that did nothing; made now if it is time."""
        if self._now is at and self._turning.admit(self._clock.now_ms()):
            self._leave(at)
        return self._now is not at

    async def _sent(self, at: _Connections, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        both = (*keys, *arguments)
        at.using += 1
        try:
            return await at.client.execute_command("EVALSHA", script.sha, len(keys), *both)
        except NoScriptError:
            return await at.client.execute_command("EVAL", script.text, len(keys), *both)
        finally:
            at.using -= 1
            self._end_if_unused(at)

    def _renew(self) -> None:
        """Connect anew once certificates were replaced on disk; half-written ones are left for the next call."""
        stamp = stamp_of(self._place.tls)
        if stamp == self._stamp:
            return
        try:
            check_certificates(self._place.tls)
        except SettingsError:
            return
        self._stamp = stamp
        self._leave(self._now)

    def _leave(self, at: _Connections) -> None:
        """Make all connections anew, unless somebody else did since `at`."""
        if self._now is not at:
            return
        # The nodes of a cluster know each other, also where the address names one that hangs.
        known = nodes_of(at.client)
        self._hosts = tuple(dict.fromkeys((*known, *self._place.hosts))) if known else self._hosts
        self.turns += 1
        self._turned_ms = self._clock.now_ms()
        self._now, at.left = self._opened(), True
        self._end_if_unused(at)

    def _opened(self) -> _Connections:
        return _Connections(client_of(self._place, self._limit_s, hosts=self._hosts, turn=self.turns))

    def _end_if_unused(self, at: _Connections) -> None:
        if at.left and not at.using:
            task = asyncio.create_task(closed(at.client))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # read, so that a command whose caller left does not warn
