"""Judges a large fleet in a few passes over its columns.

Answers exactly what `Listed` answers, figure by figure: both take the same floating-point steps in the same order.
Candidates are put in order only as far as they are read: a request tries a few of them, not thousands.
"""

from __future__ import annotations

import numpy as np

from router.policy.columns import (
    CODE_OF,
    UNBOUNDED,
    ZONES,
    Codes,
    Columns,
    Flags,
    ModelColumn,
)
from router.policy.eligibility import lacks_feature
from router.policy.model import Rejection
from router.policy.places import CandidateRows, Places, RejectedRows
from router.policy.question import Question, Shortage, Survey

_STALE, _NOT_SERVED = CODE_OF[Rejection.STALE], CODE_OF[Rejection.MODEL_NOT_SERVED]
_FEATURE, _CONTEXT = CODE_OF[Rejection.FEATURE_MISSING], CODE_OF[Rejection.CONTEXT_TOO_SMALL]
_COOLING = CODE_OF[Rejection.COOLING_DOWN]


class Bulk:
    """A fleet as columns."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def survey(self, asked: Question) -> Survey:
        """Judge all rows at once, then find the first places."""
        columns = self._columns
        model = columns.model(asked.need.model)
        codes = _codes(columns, model, asked)
        counts = _counts(codes)
        rejected = sum(counts.values())
        places = Places(columns, model, codes == 0, len(columns.rows) - rejected, asked)
        return Survey(
            candidates=CandidateRows(columns, places, asked),
            rejected=RejectedRows(columns, codes, rejected),
            rejected_counts=counts,
            largest_context_tokens=_largest_context(model, asked),
            preferred_is_slow=places.preferred_is_slow(),
            first_is_trial=places.first_is_trial(),
        )

    def shortage(self, asked: Question) -> Shortage:
        """Look again at what the rows serve."""
        columns = self._columns
        model = columns.model(asked.need.model)
        served = model.served & _permitted(columns, asked)
        return Shortage(
            model_unknown=bool(columns.rows) and bool((columns.says_what_it_serves & ~model.served).all()),
            feature_missing=bool(served.any()) and bool(_lacking(model, asked)[served].all()),
            context_open_ended=bool((model.room_tokens[served] == UNBOUNDED).any()),
            cooling_until_ms=self._cooling_until_ms(asked, model),
        )

    def _cooling_until_ms(self, asked: Question, model: ModelColumn) -> int | None:
        columns = self._columns
        permitted = _permitted(columns, asked)
        if not permitted.any() or (_codes(columns, model, asked)[permitted] != _COOLING).any():
            return None
        return int(columns.cooling_until_ms[permitted].min())


def _permitted(columns: Columns, asked: Question) -> Flags:
    flags = np.array([asked.forbidden[zone] is None for zone in ZONES])
    permitted: Flags = flags[columns.zone]
    return permitted


def _lacking(model: ModelColumn, asked: Question) -> Flags:
    """Rows whose model lacks a feature that is needed."""
    flags = np.array([lacks_feature(declared, asked.need) for declared in model.feature_sets])
    lacking: Flags = flags[model.feature_set]
    return lacking


def _codes(columns: Columns, model: ModelColumn, asked: Question) -> Codes:
    """For each row the first reason that speaks against it, in the order of `Rejection`: written last to first."""
    need, now_ms, derived = asked.need, asked.now_ms, columns.derived
    codes: Codes = columns.by_heat_or_queue.copy()
    if derived.last_cooling_ms > now_ms:
        codes[columns.cooling_until_ms > now_ms] = _COOLING
    if derived.any_by_breaker:
        np.copyto(codes, columns.by_breaker, where=columns.by_breaker > 0)
    if need.certain_tokens > model.least_room_tokens:
        codes[model.room_tokens < need.certain_tokens] = _CONTEXT
    if need.features:
        codes[_lacking(model, asked)] = _FEATURE
    np.putmask(codes, ~model.served, _NOT_SERVED)
    np.putmask(codes, columns.received_ms < now_ms - asked.stale_after_ms, _STALE)
    if derived.any_by_state:
        np.copyto(codes, columns.by_state, where=columns.by_state > 0)
    for at, zone in enumerate(ZONES):
        reason = asked.forbidden[zone]
        if reason is not None:
            np.putmask(codes, columns.zone == at, CODE_OF[reason])
    return codes


def _counts(codes: Codes) -> dict[Rejection, int]:
    counted = ((reason, int(np.count_nonzero(codes == code))) for reason, code in CODE_OF.items())
    return {reason: count for reason, count in counted if count}


def _largest_context(model: ModelColumn, asked: Question) -> int | None:
    by_zone = zip(ZONES, model.largest_context_by_zone, strict=True)
    return max((largest for zone, largest in by_zone if asked.forbidden[zone] is None), default=0) or None
