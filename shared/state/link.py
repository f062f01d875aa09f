"""One way to Redis for all that is kept there: each call ends within its limit, and a dead Redis is asked rarely.

A command that its caller gives up on still runs to its end by itself (at most the limit), and one that passes the
limit takes its connection with it: no reply can be left unread for the next command to mistake for its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisClusterException, RedisError, ResponseError

from shared.breaker import BreakerRules, CircuitBreaker
from shared.clock import Clock
from shared.errors import SettingsError, StateRefused, StateUnavailable
from shared.state.address import Layout, RedisAddress, RedisPlace, RedisTls, place_of

COMMAND_LIMIT_S = 0.25
_BREAKER = BreakerRules(failures=2, open_ms=500, max_open_ms=5_000)
_AT_ONCE = 8
"""Commands under way at the same time, and so connections to one server."""

Argument = str | bytes | int | float


class Script:
    """A Lua script, sent whole only to a server that does not have it yet."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisLink:
    """Runs scripts. `failures` grows with every call that did not succeed: what was read before may be out of date."""

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
        _check_certificates(self._place.tls)
        self._clock = clock
        self._limit_s = limit_s
        self._client = _client_of(self._place, limit_s)
        self._stamp = _stamp_of(self._place.tls)
        self._breaker = CircuitBreaker(_BREAKER)
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._running: set[asyncio.Task[Any]] = set()
        self.failures = 0

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

    async def close(self) -> None:
        """Wait for what runs, and release connections."""
        if self._running:
            await asyncio.wait(self._running)
        await _closed(self._client)

    async def _bounded(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        try:
            async with asyncio.timeout(self._limit_s), self._room:
                await self._renewed()
                answer = await _sent(self._client, script, keys, arguments)
        except ResponseError as error:
            # It answered: a full server, say, still tells what it holds, and what was read before is as good as it was.
            self._breaker.succeeded()
            raise StateRefused(f"The state store refuses this ({type(error).__name__}).") from None
        except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
            self.failures += 1
            self._breaker.failed(self._clock.now_ms())
            raise StateUnavailable(f"The state store did not answer ({type(error).__name__}).") from None
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return answer

    async def _renewed(self) -> None:
        """Connect anew once certificates were replaced on disk; half-written ones are left for the next call."""
        stamp = _stamp_of(self._place.tls)
        if stamp == self._stamp:
            return
        try:
            _check_certificates(self._place.tls)
        except SettingsError:
            return
        old, self._client, self._stamp = self._client, _client_of(self._place, self._limit_s), stamp
        await _closed(old)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # read, so that a command whose caller left does not warn


async def _sent(client: Redis | RedisCluster, script: Script, keys: Sequence[str], given: Sequence[Argument]) -> Any:
    both = (*keys, *given)
    try:
        return await client.execute_command("EVALSHA", script.sha, len(keys), *both)
    except NoScriptError:
        return await client.execute_command("EVAL", script.text, len(keys), *both)


def _client_of(place: RedisPlace, limit_s: float) -> Redis | RedisCluster:
    options: dict[str, Any] = {
        "socket_timeout": limit_s,
        # Part of the limit, so that a host that swallows packets leaves time to ask the next one.
        "socket_connect_timeout": limit_s if place.layout is Layout.SINGLE else limit_s / 3,
        "retry": Retry(NoBackoff(), 0),
        "username": place.username,
        "password": place.password,
        "protocol": 2,
    }
    tls = _tls_options(place.tls)
    if place.layout is Layout.CLUSTER:
        nodes = [ClusterNode(host, port) for host, port in place.hosts]
        return RedisCluster(startup_nodes=nodes, max_connections=2 * _AT_ONCE, **options, **tls)
    options["db"] = place.database
    if place.layout is Layout.SENTINEL:
        own = {name: value for name, value in options.items() if name.startswith("socket_") or name == "retry"}
        sentinels = Sentinel(  # type: ignore[no-untyped-call]
            list(place.hosts),
            sentinel_kwargs={**own, **tls, "password": place.sentinel_password, "protocol": 2},
            **options,
            **tls,
        )
        client: Redis = sentinels.master_for(str(place.service))
        return client
    if place.unix_path is not None:
        return Redis(unix_socket_path=place.unix_path, **options)
    (host, port) = place.hosts[0]
    return Redis(host=host, port=port, **options, **tls)


def _tls_options(tls: RedisTls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    files = {"ssl_ca_certs": tls.ca_file, "ssl_certfile": tls.cert_file, "ssl_keyfile": tls.key_file}
    named = {name: str(path.expanduser()) for name, path in files.items() if path is not None}
    return {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True, **named}


def _files_of(tls: RedisTls | None) -> list[Path]:
    named = () if tls is None else (tls.ca_file, tls.cert_file, tls.key_file)
    return [path.expanduser() for path in named if path is not None]


def _stamp_of(tls: RedisTls | None) -> tuple[tuple[int, int], ...]:
    found = []
    for path in _files_of(tls):
        try:
            status = path.stat()
        except OSError:
            found.append((0, 0))
        else:
            found.append((status.st_mtime_ns, status.st_ino))
    return tuple(found)


def _check_certificates(tls: RedisTls | None) -> None:
    if tls is None:
        return
    try:
        context = ssl.create_default_context(cafile=tls.ca_file and str(tls.ca_file.expanduser()))
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file.expanduser(), tls.key_file and tls.key_file.expanduser())
    except (OSError, ssl.SSLError):
        raise SettingsError("The certificates for Redis cannot be used.", param="router.state.tls") from None


async def _closed(client: Redis | RedisCluster) -> None:
    try:
        await client.aclose()
        pool = getattr(client, "connection_pool", None)
        if isinstance(pool, ConnectionPool):
            await pool.disconnect()
        if isinstance(pool, SentinelConnectionPool):
            for sentinel in pool.sentinel_manager.sentinels:
                await sentinel.aclose()
    except (RedisError, OSError):
        return  # a connection that cannot be closed is gone
