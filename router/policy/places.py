"""Ranks the eligible rows of a fleet's columns, and reads candidates and rejections from them one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

import numpy as np

from router.policy.columns import REJECTIONS, Codes, Columns, Flags, Floats, Ints, ModelColumn
from router.policy.model import Candidate, Rejected
from router.policy.ordering import ALTERNATIVE, CHOICE, COLD, HELD_UP, SLOW, TIGHT, UNMEASURED
from router.policy.question import Question
from shared.fleet import Zone

_HEAD = 16
"""Candidates that are put in order at once: more than a request ever tries."""
_OUT = 127
"""Band of what is no candidate."""
T = TypeVar("T")


class Places:
    """Bands, figures within a band, and the order of the rows. The same steps as `scoring.predict` and
    `ordering.rank`, over all rows at once."""

    def __init__(self, columns: Columns, model: ModelColumn, eligible: Flags, count: int, asked: Question) -> None:
        self._columns = columns
        self._asked = asked
        self._eligible = eligible
        self.count = count
        self._order: Ints | None = None
        self._head: Ints | None = None
        tier = asked.bar.preferred_tier
        self._preferred: Flags = np.ones(len(eligible), dtype=np.bool_) if tier is None else self._rows_of(tier)
        self.first_ms, self._total_ms = _predict(columns, asked)
        self._rank(model)

    def order(self, places: int) -> Ints:
        """Rows by rank, at least the first `places` of them."""
        if self._order is not None:
            return self._order
        if self._head is None:
            self._head = self._best(_HEAD)
        if places <= len(self._head):
            return self._head
        self._order = self._sorted(np.flatnonzero(self._eligible))
        return self._order

    def preferred_is_slow(self) -> bool:
        """As `Survey.preferred_is_slow`."""
        tier = self._asked.bar.preferred_tier
        if tier is None or not self.count or self._tier_of(self.order(1)[0]) == tier:
            return False
        held_up = (self.band == HELD_UP[0]) | (self.band == HELD_UP[1])
        return bool((held_up & self._preferred).any())

    def first_is_trial(self) -> bool:
        """As `Survey.first_is_trial`."""
        if not self.count:
            return False
        first = self.order(1)[0]
        if not np.isnan(self.first_ms[first]) or self.band[first] > ALTERNATIVE:
            return False
        rivals = self._eligible & ~np.isnan(self.first_ms)
        if self._asked.bar.preferred_tier is not None:
            rivals &= self._rows_of(self._tier_of(first))
        return bool(rivals.any())

    def _rank(self, model: ModelColumn) -> None:
        columns, asked, derived = self._columns, self._asked, self._columns.derived
        load, preferred = columns.load, self._preferred
        band = _measured_bands(self.first_ms, columns.tpot_ms, preferred, asked)
        score_ms, second = self._score_ms(), derived.load_ratio
        untimed = np.isnan(self._total_ms)
        tight = model.room_tokens < asked.need.likely_tokens
        if untimed.any() or derived.any_asleep or asked.need.likely_tokens > model.least_room_tokens:
            band[untimed] = np.where(preferred[untimed], CHOICE, ALTERNATIVE)
            score_ms[untimed] = -1.0
            for rows, into, scores in (
                (untimed & (load >= columns.slots), UNMEASURED, ~preferred),
                (columns.asleep, COLD, ~preferred),
                (tight, TIGHT, -model.room_tokens),
            ):
                band[rows] = into
                score_ms[rows] = scores[rows]
            second = np.where(untimed | columns.asleep | tight, load, second)
        band[~self._eligible] = _OUT
        self.band, self._first, self._second = band, score_ms, second

    def _score_ms(self) -> Floats:
        """Time in total, prices included, and shortened for the tier that is held."""
        asked, derived, score_ms = self._asked, self._columns.derived, self._total_ms.copy()
        if asked.cloud.penalty_ms:
            score_ms[derived.in_cloud] += asked.cloud.penalty_ms
        if asked.edge.penalty_ms:
            score_ms[derived.on_edge] += asked.edge.penalty_ms
        if asked.bar.held_tier is not None:
            score_ms[self._rows_of(asked.bar.held_tier)] *= asked.bar.keep_ratio
        return score_ms

    def _best(self, wanted: int) -> Ints:
        """The first rows by rank, at least `wanted` where there are as many: of the best band only what can be among
        them is sorted."""
        found: list[Ints] = []
        missing = min(wanted, self.count)
        for band in range(TIGHT + 1):
            if missing <= 0:
                break
            rows = np.flatnonzero(self.band == band)
            if len(rows) > 4 * missing:
                scores = self._first[rows]
                rows = rows[scores <= np.partition(scores, missing - 1)[missing - 1]]
            found.append(self._sorted(rows)[:missing])
            missing -= len(found[-1])
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def _sorted(self, rows: Ints) -> Ints:
        """`rows`, which stand in the order of id and address, by rank."""
        order: Ints = rows[np.lexsort((self._second[rows], self._first[rows], self.band[rows]))]
        return order

    def _tier_of(self, row: int) -> str:
        return "cloud" if self._columns.derived.in_cloud[row] else "edge"

    def _rows_of(self, tier: str) -> Flags:
        derived = self._columns.derived
        return derived.in_cloud if tier == "cloud" else derived.on_edge


def _predict(columns: Columns, asked: Question) -> tuple[Floats, Floats]:
    """Time to first token and in total; NaN where it is not known."""
    need, derived = asked.need, columns.derived
    first_ms: Floats = need.prompt_tokens * 1000.0 / columns.prefill_tokens_per_s
    np.copyto(first_ms, columns.observed_ms[need.bucket], where=derived.no_prefill)
    output_ms = need.output_tokens * columns.tpot_ms
    if derived.any_no_tpot:
        output_ms[derived.no_tpot] = need.output_tokens * asked.assumed_tpot_ms
    wait_ms = first_ms + output_ms
    wait_ms *= derived.ahead
    wait_ms /= columns.slots
    first_ms += wait_ms
    return first_ms, first_ms + output_ms


def _measured_bands(first_ms: Floats, tpot_ms: Floats, preferred: Flags, asked: Question) -> Codes:
    """Bands of rows whose time is known."""
    bar = asked.bar
    if bar.preferred_tier is None:
        return np.full(len(first_ms), CHOICE, dtype=np.uint8)
    fits = (first_ms <= bar.ttft_ms) & ~(tpot_ms > bar.tpot_ms)
    returns = fits
    if bar.held_back:
        returns = np.zeros(len(first_ms), dtype=np.bool_)
    elif bar.return_ttft_ms != bar.ttft_ms or bar.return_tpot_ms != bar.tpot_ms:
        returns = (first_ms <= bar.return_ttft_ms) & ~(tpot_ms > bar.return_tpot_ms)
    band: Codes = np.full(len(first_ms), SLOW, dtype=np.uint8)
    band[fits & ~preferred] = ALTERNATIVE
    band[returns & preferred] = CHOICE
    return band


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
        return self._item(places) if isinstance(places, int) else tuple(self._item(place) for place in places)

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
        backend, asked = self._columns.rows[row], self._asked
        price = asked.cloud if backend.zone is Zone.CLOUD else asked.edge
        caps = [cap for cap in (backend.output_cap_tokens, asked.cap_tokens) if cap is not None]
        return Candidate(
            backend.backend_id,
            backend.zone,
            backend.url,
            _known(self._places.first_ms[row]),
            _known(self._columns.tpot_ms[row]),
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
            self._rows = np.flatnonzero(self._codes)
        row = self._rows[place]
        backend = self._columns.rows[row]
        return Rejected(backend.backend_id, backend.zone, REJECTIONS[self._codes[row] - 1])


def _known(figure: np.float64) -> float | None:
    return None if np.isnan(figure) else float(figure)
