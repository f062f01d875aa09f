"""Fleet state in Redis, for many routers: every call ends within its limit, and a dead Redis is asked rarely.

Expiry runs on the Redis server's own clock and ordering on instance and sequence, so no two machines' clocks are
ever compared. A command that its caller gives up on still runs to its end by itself (at most the limit): no reply
can be left unread on a pooled connection for the next command to mistake for its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from shared.breaker import BreakerRules, CircuitBreaker
from shared.clock import Clock
from shared.errors import SettingsError, StateUnavailable
from shared.fleet import Heartbeat
from shared.state.ordering import MAX_RETIRED
from shared.state.port import Report, Signed

COMMAND_LIMIT_S = 0.25
_BREAKER = BreakerRules(failures=2, open_ms=500, max_open_ms=5_000)
_POOL_SIZE = 8

# The braces keep all keys in one slot of a Redis Cluster. Per backend: `heads` who and which beat, `beats` the beat
# itself, `seen` when it came (server milliseconds), `signatures` what its device signed it with.
_KEYS = [f"isthmus:{{fleet}}:v1:{name}" for name in ("heads", "beats", "seen", "signatures")]

_EXPIRE = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. (now - ttl))) do
  redis.call('HDEL', KEYS[1], id) redis.call('HDEL', KEYS[2], id) redis.call('ZREM', KEYS[3], id)
  redis.call('HDEL', KEYS[4], id)
end
"""
# ARGV: ttl_ms, id, instance, sequence, beat, most retired, signature or nothing. Mirrors `ordering.order_of`; one
# contract suite holds both.
_PUBLISH = (
    "local ttl = tonumber(ARGV[1])"
    + _EXPIRE
    + """
local id, instance, sequence = ARGV[2], ARGV[3], tonumber(ARGV[4])
local raw = redis.call('HGET', KEYS[1], id)
local retired = {}
if raw then
  local head = cjson.decode(raw)
  for i = 3, #head do retired[#retired + 1] = head[i] end
  if head[1] == instance then
    if sequence == tonumber(head[2]) then return 1 end
    if sequence < tonumber(head[2]) then return 0 end
  else
    for _, former in ipairs(retired) do if former == instance then return 0 end end
    retired[#retired + 1] = head[1]
    while #retired > tonumber(ARGV[6]) do table.remove(retired, 1) end
  end
end
redis.call('HSET', KEYS[1], id, cjson.encode({instance, ARGV[4], unpack(retired)}))
redis.call('HSET', KEYS[2], id, ARGV[5])
redis.call('ZADD', KEYS[3], now, id)
if ARGV[7] == '' then redis.call('HDEL', KEYS[4], id) else redis.call('HSET', KEYS[4], id, ARGV[7]) end
return 1
"""
)
_REPORTS = (
    "local ttl = tonumber(ARGV[1])"
    + _EXPIRE
    + """
local out = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  local age = now - tonumber(redis.call('ZSCORE', KEYS[3], id))
  out[#out + 1] = {age, redis.call('HGET', KEYS[2], id), redis.call('HGET', KEYS[4], id)}
end
return out
"""
)
_FORGET = (
    "redis.call('HDEL', KEYS[1], ARGV[1]) redis.call('HDEL', KEYS[2], ARGV[1]) redis.call('ZREM', KEYS[3], ARGV[1])"
    " redis.call('HDEL', KEYS[4], ARGV[1])"
)


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where Redis listens: a URL (`redis://`, `rediss://`, `unix://`), or host and port."""

    url: str | None = None
    host: str = "127.0.0.1"
    port: int = 6379
    password: str | None = None


class RedisStateStore:
    """Keeps the last report of each backend for `ttl_s`, shared by all routers on one Redis."""

    def __init__(self, address: RedisAddress, clock: Clock, *, ttl_s: float, limit_s: float = COMMAND_LIMIT_S) -> None:
        self._clock = clock
        self._ttl_ms = int(ttl_s * 1000)
        self._limit_s = limit_s
        self._client = Redis(connection_pool=_pool(address, limit_s))
        self._publish = self._client.register_script(_PUBLISH)
        self._reports = self._client.register_script(_REPORTS)
        self._forget = self._client.register_script(_FORGET)
        self._breaker = CircuitBreaker(_BREAKER)
        self._running: set[asyncio.Task[Any]] = set()
        self._seen: dict[str, Report] = {}

    async def publish(self, heartbeat: Heartbeat, signed: Signed | None = None) -> bool:
        beat = heartbeat
        arguments: list[str | int | bytes] = [
            self._ttl_ms,
            beat.backend_id,
            beat.instance,
            beat.sequence,
            signed.body if signed is not None else beat.model_dump_json(),
            MAX_RETIRED,
            signed.signature if signed is not None else "",
        ]
        return bool(await self._call(lambda: self._publish(keys=_KEYS, args=arguments)))

    async def reports(self) -> tuple[Report, ...]:
        rows = await self._call(lambda: self._reports(keys=_KEYS, args=[self._ttl_ms]))
        now_ms = self._clock.now_ms()
        seen: dict[str, Report] = {}
        for age_ms, raw, signature in rows:
            try:
                beat = Heartbeat.model_validate_json(raw)
            except ValidationError:
                continue  # written by another version: this reader cannot judge it
            known = self._seen.get(beat.backend_id)
            signed = _signed(raw, signature)
            if known is None or _beat_of(known) != (beat.instance, beat.sequence, signed):
                # A reader that starts late must not take an old beat for a new one.
                known = Report(beat, now_ms - min(max(int(age_ms), 0), self._ttl_ms), signed)
            seen[beat.backend_id] = known
        self._seen = seen
        return tuple(seen[backend_id] for backend_id in sorted(seen))

    async def forget(self, backend_id: str) -> None:
        await self._call(lambda: self._forget(keys=_KEYS, args=[backend_id]))

    async def close(self) -> None:
        if self._running:
            await asyncio.wait(self._running)
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    async def _call(self, command: Callable[[], Awaitable[Any]]) -> Any:
        if not self._breaker.admit(self._clock.now_ms()):
            raise StateUnavailable("The state store did not answer lately.")
        task = asyncio.create_task(self._bounded(command))
        self._running.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    async def _bounded(self, command: Callable[[], Awaitable[Any]]) -> Any:
        try:
            async with asyncio.timeout(self._limit_s):
                answer = await command()
        except (RedisError, OSError, TimeoutError) as error:
            self._breaker.failed(self._clock.now_ms())
            raise StateUnavailable(f"The state store did not answer ({type(error).__name__}).") from None
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return answer

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # read, so that a command whose caller left does not warn


def _beat_of(report: Report) -> tuple[str, int, Signed | None]:
    return report.heartbeat.instance, report.heartbeat.sequence, report.signed


def _signed(raw: bytes, signature: bytes | None) -> Signed | None:
    # A signature is ASCII; what is not is none, and is refused as such.
    return None if signature is None else Signed(raw, signature.decode(errors="replace"))


def _pool(address: RedisAddress, limit_s: float) -> BlockingConnectionPool:
    options: dict[str, Any] = {
        "max_connections": _POOL_SIZE,
        "timeout": limit_s,
        "socket_timeout": limit_s,
        "socket_connect_timeout": limit_s,
        "retry": Retry(NoBackoff(), 0),
        "password": address.password,
    }
    if address.password is None:
        del options["password"]
    if address.url is None:
        return BlockingConnectionPool(host=address.host, port=address.port, **options)
    try:
        return BlockingConnectionPool.from_url(address.url, **options)
    except ValueError:
        raise SettingsError("The Redis URL is not valid.", param="router.state.url") from None
