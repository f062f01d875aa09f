"""Fleet state in Redis, for many routers: each reads only what has changed since it read last.

Expiry runs on the Redis server's own clock and ordering on instance and sequence, so no two machines' clocks are
ever compared. Every accepted beat gets the next number of a counter; a reader asks for what lies above the number
that it knows. A beat that says the same as the one before it costs a reader a line, not a parse. Whenever a call has
failed, or another server answers than before, everything is read again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import ValidationError

from shared.clock import Clock
from shared.errors import StateUnavailable
from shared.fleet import Heartbeat, with_sequence, without_sequence
from shared.state.link import ONLY_PRIMARY, RedisLink, Script
from shared.state.ordering import MAX_RETIRED
from shared.state.port import Report, Signed

_PAGE = 500
"""Backends in one answer: a long one would keep other clients of the server waiting."""
DEFAULT_FLEET = "fleet"
_PARTS = ("heads", "beats", "seen", "changed", "written", "version", "signatures")
"""By backend: `heads` who and which beat and when, `beats` the beat without its sequence, `seen` when it came (server
milliseconds), `changed` and `written` the number of its last beat and of its last beat with news, `signatures`
those of its device."""

_CLOCK = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function number()
  local n = redis.call('INCR', KEYS[6])
  if n == 1 then  -- an empty store: go on above whatever numbers readers may remember
    n = now * 1000 + 1
    redis.call('SET', KEYS[6], string.format('%.0f', n))
  end
  return string.format('%.0f', n)
end
local function drop(id)
  redis.call('HDEL', KEYS[1], id) redis.call('HDEL', KEYS[2], id) redis.call('ZREM', KEYS[5], id)
  redis.call('HDEL', KEYS[7], id)
end
local function expire(ttl)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. (now - ttl), 'LIMIT', 0, 100)) do
    drop(id) redis.call('ZREM', KEYS[3], id) redis.call('ZREM', KEYS[4], id)
  end
end
"""
# ARGV: ttl_ms, id, instance, sequence, beat, most retired, signature or nothing. Mirrors `ordering.order_of`; one
# contract suite holds both. A beat that is signed after one that was not, or the other way, is news.
PUBLISH = Script(
    _CLOCK
    + """
expire(tonumber(ARGV[1]))
local id, instance, sequence = ARGV[2], ARGV[3], tonumber(ARGV[4])
local raw = redis.call('HGET', KEYS[1], id)
local retired = {}
if raw then
  local head = cjson.decode(raw)
  for i = 4, #head do retired[#retired + 1] = head[i] end
  if head[1] == instance then
    if sequence == tonumber(head[2]) then return 1 end
    if sequence < tonumber(head[2]) then return 0 end
  else
    for _, former in ipairs(retired) do if former == instance then return 0 end end
    retired[#retired + 1] = head[1]
    while #retired > tonumber(ARGV[6]) do table.remove(retired, 1) end
  end
end
local n = number()
redis.call('HSET', KEYS[1], id, cjson.encode({instance, ARGV[4], string.format('%.0f', now), unpack(retired)}))
local signed = ARGV[7] ~= ''
if redis.call('HGET', KEYS[2], id) ~= ARGV[5] or (redis.call('HEXISTS', KEYS[7], id) == 1) ~= signed then
  redis.call('HSET', KEYS[2], id, ARGV[5]) redis.call('ZADD', KEYS[5], n, id)
end
redis.call('ZADD', KEYS[3], now, id)
redis.call('ZADD', KEYS[4], n, id)
if signed then redis.call('HSET', KEYS[7], id, ARGV[7]) else redis.call('HDEL', KEYS[7], id) end
return 1
"""
)
# ARGV: number that is known (0: nothing is), page, whether of a primary alone. Returns the server's run, its time, the
# number up to which this reaches (-1: what is known is from elsewhere), whether there is more; ids, heads (null: gone)
# and signatures (empty: none) as one text of a line each, since a reader pays for every value of an answer; of the news
# places and lengths in bytes, as such texts too, and the beats one behind the other.
_CHANGES = Script(
    ONLY_PRIMARY
    + _CLOCK
    + """
local ok, about = pcall(redis.call, 'INFO', 'server')
local run = ok and string.match(about, 'run_id:(%x+)') or ''
local last = redis.call('GET', KEYS[6]) or '0'
local known = tonumber(ARGV[1])
if known > tonumber(last) then return {run, now, '-1', 0, '', '', '', '', '', ''} end
local page = tonumber(ARGV[2])
local rows = redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, page)
local ids = {}
for i = 1, #rows, 2 do ids[#ids + 1] = rows[i] end
if #ids == 0 then return {run, now, last, 0, '', '', '', '', '', ''} end
local heads = redis.call('HMGET', KEYS[1], unpack(ids))
local written = redis.call('ZMSCORE', KEYS[5], unpack(ids))
local signed = redis.call('HMGET', KEYS[7], unpack(ids))
local news, at = {}, {}
for i = 1, #ids do
  heads[i] = heads[i] or 'null'
  signed[i] = signed[i] or ''
  if written[i] and tonumber(written[i]) > known then news[#news + 1] = ids[i] at[#at + 1] = i - 1 end
end
local beats, lengths = #news > 0 and redis.call('HMGET', KEYS[2], unpack(news)) or {}, {}
for i = 1, #news do
  beats[i] = beats[i] or ''
  lengths[i] = #beats[i]
end
local more = #ids == page and 1 or 0
local reached = more == 1 and string.format('%.0f', tonumber(rows[#rows])) or last
local function lines(each) return table.concat(each, string.char(10)) end
return {run, now, reached, more, lines(ids), lines(heads), lines(signed),
  lines(at), lines(lengths), table.concat(beats)}
"""
)
# It changes something in any case, so that no replica takes it for done.
_FORGET = Script(
    _CLOCK
    + """
redis.call('HDEL', KEYS[1], '')
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  drop(ARGV[1])
  redis.call('ZADD', KEYS[3], now, ARGV[1])
  redis.call('ZADD', KEYS[4], number(), ARGV[1])
end
"""
)


def keys_of(fleet: str) -> list[str]:
    """The keys of a fleet; the braces keep all of them in one slot of a Redis Cluster."""
    return [f"isthmus:{{{fleet}}}:v2:{part}" for part in _PARTS]


def publication(beat: Heartbeat, ttl_ms: int, signed: Signed | None = None) -> list[str | int | bytes]:
    """Arguments of `PUBLISH` for `beat`. A signature over bytes that cannot be kept apart is left out."""
    rest = without_sequence(signed.body, beat.sequence) if signed is not None else None
    signature = signed.signature if signed is not None and rest is not None else ""
    body = rest if rest is not None else beat.model_dump_json(exclude={"sequence"})
    return [ttl_ms, beat.backend_id, beat.instance, beat.sequence, body, MAX_RETIRED, signature]


@dataclass(slots=True)
class _Known:
    """What one reader has: up to which number, of which run of the server, and after how many failures and turns."""

    number: str = "0"
    run: str = ""
    after: tuple[int, int] = (0, 0)
    reports: dict[str, Report] = field(default_factory=dict)


_Row = tuple[str, Any, bytes | None, bytes | None]


class RedisStateStore:
    """Keeps the last report of each backend for `ttl_s`, shared by all routers of one `fleet` on one Redis."""

    def __init__(self, link: RedisLink, clock: Clock, *, ttl_s: float, fleet: str = DEFAULT_FLEET) -> None:
        self._link = link
        self._clock = clock
        self._ttl_ms = int(ttl_s * 1000)
        self._keys = keys_of(fleet)
        self._known = _Known()

    async def publish(self, heartbeat: Heartbeat, signed: Signed | None = None) -> bool:
        return bool(await self._link.run(PUBLISH, self._keys, publication(heartbeat, self._ttl_ms, signed)))

    async def reports(self) -> tuple[Report, ...]:
        known, after = self._known, (self._link.failures, self._link.turns)
        if known.after != after:
            known = _Known(after=after)
        before = self._known.reports
        run, reports, number = known.run, dict(known.reports), known.number
        again = number == "0"
        while True:
            answer = await self._link.look(_CHANGES, self._keys, [number, _PAGE])
            ran, server_ms, reached, more = answer[0].decode(), int(answer[1]), answer[2].decode(), answer[3]
            if number != "0" and (ran != run or reached == "-1"):
                reports, number, run, again = (
                    {},
                    "0",
                    ran,
                    True,
                )  # another server, or one that lost its memory: all of it again
                continue
            run, number = ran, reached
            if answer[4]:
                self._take(_rows(answer[4:]), server_ms, reports, before if again else {})
            if not more:
                break
        self._known = _Known(number, run, known.after, self._alive(reports, before))
        return tuple(self._known.reports.values())

    async def forget(self, backend_id: str) -> None:
        await self._link.run(_FORGET, self._keys, [backend_id])

    async def close(self) -> None:
        await self._link.close()

    def _take(
        self, rows: Iterable[_Row], server_ms: int, reports: dict[str, Report], before: dict[str, Report]
    ) -> None:
        """Bring `reports` up to date; `before` spares the parse where a backend is read again as it was."""
        now_ms = self._clock.now_ms()
        for backend_id, head, beat, signature in rows:
            try:
                instance, sequence, age_ms = head[0], int(head[1]), max(server_ms - int(head[2]), 0)
            except (TypeError, ValueError, LookupError):
                age_ms = self._ttl_ms + 1  # gone, or written by somebody else: the other rows are none the worse
            if age_ms > self._ttl_ms:
                reports.pop(backend_id, None)
                continue
            former = before.get(backend_id)
            if former and (former.instance, former.sequence) == (instance, sequence):
                # Read again as it was. Elsewhere, a new number for the same beat says that it was forgotten between.
                reports[backend_id] = former
                continue
            # A reader that starts late must not take an old beat for a new one.
            report = _report_of(beat, signature, sequence, reports.get(backend_id), now_ms - age_ms)
            if report is None:
                reports.pop(backend_id, None)  # written by another version: this reader cannot judge it
            else:
                reports[backend_id] = report

    def _alive(self, reports: dict[str, Report], before: dict[str, Report]) -> dict[str, Report]:
        """Those that are not too old, by backend id; they are put in order only when others came or went."""
        oldest_ms = self._clock.now_ms() - self._ttl_ms
        for name in [name for name, report in reports.items() if report.received_ms < oldest_ms]:
            del reports[name]
        return reports if list(reports) == list(before) else {name: reports[name] for name in sorted(reports)}


def _rows(parts: list[Any]) -> Iterator[_Row]:
    """Id, head (instance, sequence, when it came; None: gone), the beat where there is news, and the signature.

    Raises:
        StateUnavailable: somebody else wrote there.
    """
    ids, lines, signatures, places, lengths, beats = parts
    names, signed = ids.decode().split("\n"), signatures.split(b"\n")
    try:
        heads = orjson.loads(b"[%s]" % lines.replace(b"\n", b","))
    except orjson.JSONDecodeError:
        heads = [_json_or_none(line) for line in lines.split(b"\n")]
    if not len(names) == len(heads) == len(signed):
        raise StateUnavailable("The state store holds what no router wrote.")
    news: list[bytes | None] = [None] * len(names)
    ends = list(itertools.accumulate(map(int, lengths.split())))
    for place, start, end in zip(places.split(), (0, *ends), ends, strict=False):
        news[int(place)] = beats[start:end]
    return zip(names, heads, news, (signature or None for signature in signed), strict=True)


def _json_or_none(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _report_of(
    raw: bytes | None, signature: bytes | None, sequence: int, known: Report | None, received_ms: int
) -> Report | None:
    """The report of a beat: of `raw` with its sequence, or of what was known, where nothing but the sequence is new."""
    # A signature is ASCII; what is not is none, and is refused as such.
    header = None if signature is None else signature.decode(errors="replace")
    if raw is None:
        return None if known is None else _said_again(known, header, sequence, received_ms)
    body = with_sequence(raw, sequence)
    try:
        heartbeat = Heartbeat.model_validate_json(body)
    except ValidationError:
        return None
    return Report(heartbeat, received_ms, None if header is None else Signed(body, header))


def _said_again(known: Report, header: str | None, sequence: int, received_ms: int) -> Report | None:
    """The beat after `known`, whose content is the same; a signature is one over the bytes with the new sequence."""
    if header is None:
        return Report(known.content, received_ms, None, sequence)
    rest = None if known.signed is None else without_sequence(known.signed.body, known.sequence)
    if rest is None:
        return None
    return Report(known.content, received_ms, Signed(with_sequence(rest, sequence), header), sequence)
