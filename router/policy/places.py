"""Ranks the eligible rows of a fleet's columns, and reads candidates and rejections from them one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

import numpy as np

from router.policy.columns import FINE, REJECTIONS, Codes, Columns, Flags, Floats, Ints, ModelColumn
from router.policy.model import Candidate, Rejected
from router.policy.ordering import ALTERNATIVE, CHOICE, COLD, HELD, HELD_UP, SLOW, TIGHT, UNMEASURED, TierBar
from router.policy.question import UNHELD_MS, Question
from shared.fleet import Zone

_HEAD = 16
"""Candidates that are put in order at once: more than a request ever tries."""
T = TypeVar("T")


class Places:
    """The order of the rows. The same steps as `listed` and `ordering.rank`, over all rows at once; a band is looked at
    only when those before it have too few rows."""

    def __init__(self, columns: Columns, model: ModelColumn, eligible: Flags, count: int, asked: Question) -> None:
        """`count` rows are `eligible`."""
        self.count = count
        self._columns = columns
        self._model = model
        self._eligible = eligible
        self._asked = asked
        self._unmeasured = columns.derived.unmeasured[asked.need.bucket]
        self._any_unmeasured = columns.derived.any_unmeasured[asked.need.bucket]
        self._any_tight = asked.need.likely_tokens > model.least_room_tokens
        self._open = self._without_special(eligible)
        self.first_ms, self._total_ms = _predict(columns, asked)
        self._order: Ints = np.empty(0, dtype=np.int64)
        self._first_band = self._grow(_HEAD)

    def order(self, places: int) -> Ints:
        """Rows by rank, at least the first `places` of them."""
        if places > len(self._order):
            self._grow(2 * places)
        return self._order

    def preferred_is_slow(self) -> bool:
        """As `Survey.preferred_is_slow`."""
        tier = self._asked.bar.preferred_tier
        if tier is None or not self.count or self._tier_of(self._order[0]) == tier:
            return False
        return any(bool((self._rows_in(band) & self._rows_of(tier)).any()) for band in HELD_UP)

    def first_is_trial(self) -> bool:
        """As `Survey.first_is_trial`."""
        if not self.count or self._first_band > ALTERNATIVE or not np.isnan(self.first_ms[self._order[0]]):
            return False
        rivals = self._eligible & ~self._unmeasured
        if self._asked.bar.preferred_tier is not None:
            rivals &= self._rows_of(self._tier_of(self._order[0]))
        return bool(rivals.any())

    def _grow(self, places: int) -> int:
        """Put the first `places` rows in order; the band of the first one."""
        found: list[Ints] = []
        first_band, missing = TIGHT, min(places, self.count)
        for band in range(TIGHT + 1):
            if missing <= 0:
                break
            rows = self._first_of(band, missing)
            if len(rows):
                found.append(rows)
                missing -= len(rows)
                first_band = min(first_band, band)
        if found:
            self._order = np.concatenate(found)
        return first_band

    def _first_of(self, band: int, wanted: int) -> Ints:
        """The first `wanted` rows of a band, in order; only those that can be among them are sorted."""
        among = self._rows_in(band)
        size = int(np.count_nonzero(among))
        if not size:
            return np.empty(0, dtype=np.int64)
        first = self._first_figures(band)
        if size > 4 * wanted:
            reached = np.where(among, first, np.inf)
            among &= reached <= np.partition(reached, wanted - 1)[wanted - 1]
        rows = np.flatnonzero(among)
        order: Ints = rows[np.lexsort((self._second_figures(band, rows), first[rows]))]
        return order[:wanted]

    def _rows_in(self, band: int) -> Flags:
        """The rows of a band."""
        figures = self._columns.figures
        if band == TIGHT:
            return self._eligible & self._tight()
        if band == COLD:
            return self._eligible & figures.asleep & ~self._tight()
        if band == UNMEASURED:
            return self._open & self._unmeasured & (figures.load >= figures.slots)
        if band in (SLOW, HELD):
            fast = [self._fast(tier) & self._rows_of(tier) for tier in ("edge", "cloud")]
            slow = self._open & ~self._unmeasured & ~(fast[0] | fast[1])
            return slow & self._held() if band == HELD else slow & ~self._held()
        tiers = [tier for tier in ("edge", "cloud") if _bar(self._asked, tier).meets == band]
        if len(tiers) == 2:  # no tier is preferred, and nothing too slow
            good = ~self._unmeasured
        elif not tiers:
            return np.zeros(len(self._eligible), dtype=np.bool_)
        else:
            good = self._fast(tiers[0])
        if self._any_unmeasured:
            good = good | (self._unmeasured & (figures.load < figures.slots))
        good = good & self._open
        return good if len(tiers) == 2 else good & self._rows_of(tiers[0])

    def _fast(self, tier: str) -> Flags:
        """Rows that a tier's bar calls fast enough; none that is not measured."""
        bar = _bar(self._asked, tier)
        return (self.first_ms <= bar.ttft_ms) & ~(self._columns.figures.tpot_ms > bar.tpot_ms)

    def _held(self) -> Flags:
        """Rows whose line is kept for what no cloud can serve, if one that comes before them can serve this request."""
        figures, held_ms = self._columns.figures, self._asked.held_ms
        is_judged = ~self._unmeasured | (figures.load < figures.slots)
        if held_ms == UNHELD_MS or not (self._open & self._columns.derived.in_cloud & is_judged).any():
            return np.zeros(len(self._eligible), dtype=np.bool_)
        return figures.has_line & (line_ms(self._columns, self._asked) > held_ms)

    def _first_figures(self, band: int) -> Floats | Ints | Flags:
        """What the rows of a band are sorted by, of every row."""
        if band == TIGHT:
            return -self._model.room_tokens
        if band in (COLD, UNMEASURED):
            preferred = self._asked.bar.preferred_tier
            return np.zeros_like(self._open) if preferred is None else ~self._rows_of(preferred)
        scores = self._score_ms()
        return np.where(self._unmeasured, -1.0, scores) if self._any_unmeasured else scores

    def _second_figures(self, band: int, rows: Ints) -> Floats | Ints:
        """What breaks ties among `rows` of a band."""
        figures = self._columns.figures
        if band not in (CHOICE, ALTERNATIVE, SLOW, HELD):
            return figures.load[rows]
        ratio = figures.load_ratio[rows]
        return np.where(self._unmeasured[rows], figures.load[rows], ratio) if self._any_unmeasured else ratio

    def _score_ms(self) -> Floats:
        """Time in total, prices included, and shortened for the tier that is in use."""
        asked, in_cloud, score_ms = self._asked, self._columns.derived.in_cloud, self._total_ms
        if asked.edge.penalty_ms or asked.cloud.penalty_ms:
            score_ms = score_ms + np.where(in_cloud, asked.cloud.penalty_ms, asked.edge.penalty_ms)
        edge, cloud = asked.bar.edge.keep_ratio, asked.bar.cloud.keep_ratio
        return score_ms if edge == cloud == 1.0 else score_ms * np.where(in_cloud, cloud, edge)

    def _without_special(self, eligible: Flags) -> Flags:
        """Eligible rows that are awake and have room."""
        if self._columns.derived.any_asleep:
            eligible = eligible & ~self._columns.figures.asleep
        return eligible & ~self._tight() if self._any_tight else eligible

    def _tight(self) -> Flags:
        """Rows in whose context prompt and output are not expected to fit."""
        tight: Flags = self._model.room_tokens < self._asked.need.likely_tokens
        return tight

    def _tier_of(self, row: int) -> str:
        return "cloud" if self._columns.derived.in_cloud[row] else "edge"

    def _rows_of(self, tier: str) -> Flags:
        derived = self._columns.derived
        return derived.in_cloud if tier == "cloud" else derived.on_edge


def line_ms(columns: Columns, asked: Question) -> Floats:
    """`rows.line_ms` of every row; it counts where a line stands."""
    figures, need = columns.figures, asked.need
    prompt_ms: Floats = need.prompt_tokens * figures.ms_per_prompt_token
    answer_ms = np.where(np.isnan(figures.answer_ms), need.typical_tokens * figures.tpot_ms, figures.answer_ms)
    ahead_ms: Floats = (prompt_ms + answer_ms) * figures.wait_ratio + figures.wait_ms
    first_ms: Floats = prompt_ms + np.maximum(ahead_ms, figures.slot_wait_ms)
    return first_ms


def _bar(asked: Question, tier: str) -> TierBar:
    return asked.bar.cloud if tier == "cloud" else asked.bar.edge


def _predict(columns: Columns, asked: Question) -> tuple[Floats, Floats]:
    """Time to first token and in total; NaN where it is not known."""
    need, figures, derived = asked.need, columns.figures, columns.derived
    first_ms: Floats = need.prompt_tokens * figures.ms_per_prompt_token
    first_ms += figures.idle_first_ms[need.bucket]
    output_ms: Floats = need.output_tokens * figures.tpot_ms
    if derived.any_no_tpot:
        output_ms[derived.no_tpot] = need.output_tokens * asked.assumed_tpot_ms
    wait_ms = first_ms + output_ms
    wait_ms *= figures.wait_ratio
    wait_ms += figures.wait_ms
    first_ms += wait_ms
    output_ms += first_ms
    return first_ms, output_ms


class _Rows(Sequence[T]):
    """A sequence whose items are made when they are read; equal to any sequence of equal items."""

    def _item(self, place: int) -> T:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        places = range(len(self))[index]
        return self._item(places) if isinstance(places, int) else tuple([self._item(place) for place in places])

    def __iter__(self) -> Iterator[T]:
        return (self._item(place) for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(mine == its for mine, its in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))


class CandidateRows(_Rows[Candidate]):
    """Candidates in order."""

    def __init__(self, columns: Columns, places: Places, asked: Question) -> None:
        self._columns = columns
        self._places = places
        self._asked = asked

    def __len__(self) -> int:
        return self._places.count

    def _item(self, place: int) -> Candidate:
        row = int(self._places.order(place + 1)[place])
        backend, asked = self._columns.backends[row], self._asked
        price = asked.cloud if backend.zone is Zone.CLOUD else asked.edge
        caps = [cap for cap in (backend.output_cap_tokens, asked.cap_tokens) if cap is not None]
        return Candidate(
            backend.backend_id,
            backend.zone,
            backend.url,
            _known(self._places.first_ms[row]),
            _known(self._columns.figures.tpot_ms[row]),
            backend.level,
            min(caps, default=None),
            price.money,
            price.joules,
        )


class RejectedRows(_Rows[Rejected]):
    """Rejections by name."""

    def __init__(self, columns: Columns, codes: Codes, count: int) -> None:
        self._columns = columns
        self._codes = codes
        self._count = count
        self._rows: Ints | None = None

    def __len__(self) -> int:
        return self._count

    def _item(self, place: int) -> Rejected:
        if self._rows is None:
            self._rows = np.flatnonzero(self._codes != FINE)
        row = self._rows[place]
        backend = self._columns.backends[row]
        return Rejected(backend.backend_id, backend.zone, REJECTIONS[self._codes[row]])


def _known(figure: np.float64) -> float | None:
    return None if np.isnan(figure) else float(figure)
