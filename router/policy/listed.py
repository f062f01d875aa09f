"""Judges a fleet backend by backend: the plain form of the algorithm, and the faster one for a few dozen backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

from router.policy import ordering
from router.policy.eligibility import lacks_feature
from router.policy.model import Candidate, Rejected, Rejection
from router.policy.need import Need
from router.policy.question import UNHELD_MS, Question, Shortage, Survey
from router.policy.rows import NOBODYS, UNBOUNDED, Entry, Row, entry_of, in_order, line_ms, row_of, served_in
from shared.fleet import BackendSnapshot

Placed = tuple[ordering.Rank, Candidate]

# A member of an Enum costs more to look up than the comparison it is for, and a named tuple more to make by its name.
_STALE, _NOT_SERVED = Rejection.STALE, Rejection.MODEL_NOT_SERVED
_FEATURE_MISSING, _CONTEXT = Rejection.FEATURE_MISSING, Rejection.CONTEXT_TOO_SMALL
_COOLING_DOWN, _WAIT_TOO_LONG = Rejection.COOLING_DOWN, Rejection.WAIT_TOO_LONG
_new = tuple.__new__


class Listed:
    """A fleet backend by backend, in the order of id and address. It is made when the fleet changes; what it says about
    one model is put together when that model is first asked for."""

    __slots__ = ("_backends", "_entries", "_rows", "_served")

    def __init__(self, backends: tuple[BackendSnapshot, ...]) -> None:
        self._backends: Sequence[BackendSnapshot] = in_order(backends)
        self._rows = [row_of(backend) for backend in self._backends]
        self._served = served_in(backends)
        self._entries: dict[str, list[Entry]] = {}

    def updated(self, backends: tuple[BackendSnapshot, ...], changed: Iterable[int]) -> Listed:
        """The same for `backends`, which stand in order and have other figures than here at the places `changed`."""
        other: Listed = Listed.__new__(Listed)
        other._backends, other._rows, other._served = backends, self._rows.copy(), self._served
        other._entries = {model_id: entries.copy() for model_id, entries in self._entries.items()}
        for at in changed:
            new = backends[at]
            if new.models != self._backends[at].models:
                return Listed(backends)
            row = other._rows[at] = row_of(new)
            for entries in other._entries.values():
                entries[at] = entry_of(row, entries[at].served)
        return other

    def survey(self, asked: Question) -> Survey:
        """Judge each backend, then sort."""
        largest = 0
        rejected: list[Rejected] = []
        counts: dict[Rejection, int] = {}
        able: list[tuple[Row, int]] = []
        held_ms = UNHELD_MS
        need, forbidden, oldest_ms = asked.need, asked.forbidden, asked.now_ms - asked.stale_after_ms
        certain_tokens, needs_features = need.certain_tokens, bool(need.features)
        for entry in self._of(need.model):
            row, _, room, is_open = entry
            reason = forbidden[row.zone]
            if reason is None:
                if largest < room != UNBOUNDED:
                    largest = room
                if needs_features or certain_tokens > room or row.received_ms < oldest_ms or not is_open:
                    reason = _inability(entry, asked)
                elif row.has_line and line_ms(row, need) > asked.wait_limit_ms:  # all that is left of an open one
                    reason = _WAIT_TOO_LONG
            if reason is None:
                able.append((row, room))
                if row.in_cloud and _comes_before_held(row, room, need):
                    held_ms = asked.held_ms
            else:
                rejected.append(_new(Rejected, (row.backend_id, row.zone, reason)))
                counts[reason] = counts.get(reason, 0) + 1
        placed = _placed(able, asked, held_ms)
        placed.sort(key=_BY_RANK)
        is_slow, is_trial = _preferred_is_slow(placed, asked.bar), _first_is_trial(placed, asked.bar)
        candidates = tuple([candidate for _, candidate in placed])
        return Survey(candidates, tuple(rejected), counts, largest or None, is_slow, is_trial)

    def shortage(self, asked: Question) -> Shortage:
        """Look again at what each backend serves."""
        entries, forbidden = self._of(asked.need.model), asked.forbidden
        permitted = [entry for entry in entries if forbidden[entry.row.zone] is None]
        serving = [(entry, entry.served) for entry in permitted if entry.served is not None]
        inabilities = [_inability(entry, asked) for entry in permitted]
        lines = [entry.row for entry, why in zip(permitted, inabilities, strict=True) if why is _WAIT_TOO_LONG]
        return Shortage(
            model_unknown=bool(entries) and all(e.row.says_what_it_serves and e.served is None for e in entries),
            feature_missing=bool(serving) and all(lacks_feature(served.features, asked.need) for _, served in serving),
            context_open_ended=any(entry.room_tokens == UNBOUNDED for entry, _ in serving),
            cooling_until_ms=min((entry.row.cooling_until_ms for entry in permitted), default=None)
            if all(why is _COOLING_DOWN for why in inabilities)
            else None,
            excess_ms=min((line_ms(row, asked.need) - asked.wait_limit_ms for row in lines), default=None),
        )

    def _of(self, model_id: str) -> list[Entry]:
        model_id = model_id if model_id in self._served else NOBODYS
        entries = self._entries.get(model_id)
        if entries is None:
            rows = zip(self._rows, self._backends, strict=True)
            entries = self._entries[model_id] = [entry_of(row, backend.model(model_id)) for row, backend in rows]
        return entries


_BY_RANK = itemgetter(0)


def _inability(entry: Entry, asked: Question) -> Rejection | None:
    """Why a permitted backend cannot serve now, or None."""
    row, served, room, _ = entry
    need, now_ms = asked.need, asked.now_ms
    if row.by_state is not None:
        return row.by_state
    if row.received_ms < now_ms - asked.stale_after_ms:
        return _STALE
    if served is None:
        return _NOT_SERVED
    if need.features and lacks_feature(served.features, need):
        return _FEATURE_MISSING
    if need.certain_tokens > room:
        return _CONTEXT
    if row.by_breaker is not None:
        return row.by_breaker
    if now_ms < row.cooling_until_ms:
        return _COOLING_DOWN
    if row.by_heat_or_queue is None and row.has_line and line_ms(row, need) > asked.wait_limit_ms:
        return _WAIT_TOO_LONG
    return row.by_heat_or_queue


def _placed(able: list[tuple[Row, int]], asked: Question, held_ms: float) -> list[Placed]:
    """Backends that may and can serve, each with its rank. The figures are those of `rows`."""
    need, edge, cloud, limit, assumed_tpot_ms = (
        asked.need,
        asked.edge,
        asked.cloud,
        asked.cap_tokens,
        asked.assumed_tpot_ms,
    )
    edge_bar, cloud_bar = asked.bar.edge, asked.bar.cloud
    prompt_tokens, output_tokens, likely_tokens, bucket = (
        need.prompt_tokens, need.output_tokens, need.likely_tokens, need.bucket
    )  # fmt: skip
    placed: list[Placed] = []
    for row, room in able:
        price, bar = (cloud, cloud_bar) if row.in_cloud else (edge, edge_bar)
        cap, tpot_ms, first_ms = row.output_cap_tokens, row.tpot_ms, row.idle_first_ms[bucket]
        total_ms = 0.0
        if first_ms is not None:
            output_ms = output_tokens * (assumed_tpot_ms if tpot_ms is None else tpot_ms)
            first_ms = prompt_tokens * row.ms_per_prompt_token + first_ms
            first_ms += (first_ms + output_ms) * row.wait_ratio + row.wait_ms
            total_ms = first_ms + output_ms
        if limit is not None and (cap is None or cap > limit):
            cap = limit
        is_held = row.has_line and held_ms < UNHELD_MS and line_ms(row, need) > held_ms
        rank = ordering.rank(row, likely_tokens > room, room, first_ms, total_ms + price.penalty_ms, bar, is_held)
        values = (row.backend_id, row.zone, row.url, first_ms, tpot_ms, row.level, cap, price.money, price.joules)
        placed.append((rank, _new(Candidate, values)))
    return placed


def _comes_before_held(row: Row, room: int, need: Need) -> bool:
    """Whether a cloud that can serve is awake, has room and can be judged: it stands before what is held."""
    is_judged = row.load < row.slots or row.idle_first_ms[need.bucket] is not None
    return is_judged and not row.asleep and need.likely_tokens <= room


def _preferred_is_slow(placed: list[Placed], bar: ordering.Bar) -> bool:
    """Whether a candidate of the preferred tier misses the objective or waits for its trials."""
    if bar.preferred_tier is None or not placed or placed[0][1].zone.tier == bar.preferred_tier:
        return False
    return any(r[0] in ordering.HELD_UP and c.zone.tier == bar.preferred_tier for r, c in placed)


def _first_is_trial(placed: list[Placed], bar: ordering.Bar) -> bool:
    """Whether an unmeasured first place displaced a measured one of a tier that is as good."""
    if not placed or placed[0][1].predicted_ttft_ms is not None or placed[0][0][0] > ordering.ALTERNATIVE:
        return False
    tier = placed[0][1].zone.tier
    return any(
        c.predicted_ttft_ms is not None and (bar.preferred_tier is None or c.zone.tier == tier) for _, c in placed[1:]
    )
