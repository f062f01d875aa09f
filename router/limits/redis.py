"""Limits counted in Redis, exactly, for all routers: one script decides and counts, on the server's own clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.limits.port import LEASE_MS, Bound, Demand, Standing
from router.limits.window import SPAN_S
from shared.keys import KeyLimits
from shared.state.link import RedisLink, Script

# KEYS: requests, tokens, leases of one holder. A hash has the amount of each second, and `used`, their sum; `from` is
# the oldest second that may have one. The same arithmetic as `window.Window`; one suite holds both to it.
_WINDOW = f"""
local SPAN = {SPAN_S}
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local second = tonumber(t[1])
local function roll(key)
  local head = redis.call('HMGET', key, 'used', 'from')
  local used, from = tonumber(head[1] or '0'), tonumber(head[2] or second)
  local live = second - SPAN
  if from < live then
    local gone = {{}}
    for s = from, math.min(live - 1, from + 2 * SPAN) do gone[#gone + 1] = s end
    for i, amount in ipairs(redis.call('HMGET', key, unpack(gone))) do
      if amount then used = used - tonumber(amount) redis.call('HDEL', key, gone[i]) end
    end
    redis.call('HSET', key, 'used', used, 'from', live)
  end
  return used, math.max(from, live)
end
local function add(key, amount, at)
  redis.call('HINCRBY', key, at, amount)
  redis.call('HINCRBY', key, 'used', amount)
  redis.call('HSETNX', key, 'from', at)
  redis.call('PEXPIRE', key, (SPAN + 2) * 1000)
end
local function amounts(key, from)
  local names = {{}}
  for s = math.min(from, second), second do names[#names + 1] = s end  -- the clock of a new primary may be behind
  return names, redis.call('HMGET', key, unpack(names))
end
local function wait(key, used, from, amount, limit)
  local over = used + amount - limit
  if over <= 0 then return 0 end
  local names, found = amounts(key, from)
  for i, each in ipairs(found) do
    over = over - tonumber(each or '0')
    if over <= 0 then return (names[i] + 1 + SPAN) * 1000 - now end
  end
  return SPAN * 1000
end
local function reset(key, used, from)
  if used == 0 then return 0 end
  local names, found = amounts(key, from)
  for i = #names, 1, -1 do
    if tonumber(found[i] or '0') > 0 then return (names[i] + 1 + SPAN) * 1000 - now end
  end
  return 0
end
"""
# ARGV: requests, tokens and requests at the same time that are allowed (-1: any), tokens, lease, its time (ms).
_TAKE = Script(
    _WINDOW
    + """
local rpm, tpm, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, lease, lease_ms = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local r, rfrom, k, kfrom = 0, second, 0, second
local bound, retry = '', 0
if rpm >= 0 then
  r, rfrom = roll(KEYS[1])
  retry = wait(KEYS[1], r, rfrom, 1, rpm)
  if retry > 0 then bound = 'requests' end
end
if tpm >= 0 then
  k, kfrom = roll(KEYS[2])
  if bound == '' then
    retry = wait(KEYS[2], k, kfrom, tokens, tpm)
    if retry > 0 then bound = 'tokens' end
  end
end
if most >= 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
  if bound == '' and redis.call('ZCARD', KEYS[3]) >= most then bound, retry = 'concurrent', 1000 end
end
if bound == '' then
  if rpm >= 0 then add(KEYS[1], 1, second) r = r + 1 end
  if tpm >= 0 then add(KEYS[2], tokens, second) k = k + tokens end
  if most >= 0 then
    redis.call('ZADD', KEYS[3], now + lease_ms, lease)
    redis.call('PEXPIRE', KEYS[3], lease_ms * 2)
  end
end
return {bound, retry, second, r, reset(KEYS[1], r, rfrom), k, reset(KEYS[2], k, kfrom)}
"""
)
# ARGV: lease, second of its tokens, difference in tokens.
_SETTLE = Script(
    _WINDOW
    + """
redis.call('ZREM', KEYS[3], ARGV[1])
local at, amount = tonumber(ARGV[2]), tonumber(ARGV[3])
if amount == 0 then return end
local _, from = roll(KEYS[2])
local there = redis.call('HGET', KEYS[2], at)
if there then add(KEYS[2], math.max(amount, -tonumber(there)), at)
elseif amount > 0 then add(KEYS[2], amount, second) end
"""
)
# ARGV: time of the leases (ms), leases. Those that the server has lost are entered again.
_RENEW = Script("""
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for i = 2, #ARGV do redis.call('ZADD', KEYS[3], now + tonumber(ARGV[1]), ARGV[i]) end
redis.call('PEXPIRE', KEYS[3], tonumber(ARGV[1]) * 2)
""")
# KEYS: routers. ARGV: this one, how long it counts as there (ms). Returns how many there are.
_PRESENT = Script("""
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[2]) * 2)
return redis.call('ZCARD', KEYS[1])
""")
_ABSENT = Script("redis.call('ZREM', KEYS[1], ARGV[1])")
_PAGE = 1_000


class RedisLimiter:
    """Counts for all routers of one `fleet`."""

    def __init__(self, link: RedisLink, *, fleet: str, lease_ms: int = LEASE_MS) -> None:
        self._link = link
        self._fleet = fleet
        self._lease_ms = lease_ms

    async def take(self, demand: Demand) -> Standing:
        arguments: list[str | int] = [*_of(demand.limits), demand.tokens, demand.lease, self._lease_ms]
        bound, *figures = await self._link.run(_TAKE, self._keys(demand.holder), arguments)
        return Standing(Bound(bound.decode()) if bound else None, *map(int, figures))

    async def settle(self, demand: Demand, standing: Standing, tokens: int) -> None:
        change = tokens - demand.tokens if demand.limits.tokens_per_minute is not None else 0
        await self._link.run(_SETTLE, self._keys(demand.holder), [demand.lease, standing.second, change])

    async def renew(self, held: Mapping[str, Sequence[str]]) -> None:
        """Say that these leases run on, by holder. Raises StateUnavailable."""
        for holder, leases in held.items():
            for start in range(0, len(leases), _PAGE):
                await self._link.run(_RENEW, self._keys(holder), [self._lease_ms, *leases[start : start + _PAGE]])

    async def present(self, router: str) -> int:
        """Say that `router` is there; how many are. Raises StateUnavailable."""
        return int(await self._link.run(_PRESENT, [self._routers()], [router, self._lease_ms]))

    async def absent(self, router: str) -> None:
        """`router` goes. Raises StateUnavailable."""
        await self._link.run(_ABSENT, [self._routers()], [router])

    def _routers(self) -> str:
        return f"isthmus:{{{self._fleet}}}:v2:routers"

    def _keys(self, holder: str) -> list[str]:
        # A tag of its own for each holder spreads them over the nodes of a cluster.
        return [f"isthmus:{{{self._fleet}:{holder}}}:v2:{part}" for part in ("requests", "tokens", "leases")]


def _of(limits: KeyLimits) -> list[int]:
    each = (limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent)
    return [-1 if limit is None else limit for limit in each]
