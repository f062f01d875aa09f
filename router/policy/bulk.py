"""Judges a large fleet in a few passes over its columns.

Answers exactly what `Listed` answers, figure by figure: both take the same floating-point steps in the same order.
Candidates are put in order only as far as they are read: a request tries a few of them, not thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from router.policy.columns import CODE_OF, FINE, ZONES, Codes, Columns, Flags, ModelColumn
from router.policy.eligibility import lacks_feature
from router.policy.model import Rejection
from router.policy.places import CandidateRows, Places, RejectedRows, line_ms
from router.policy.question import Question, Shortage, Survey
from router.policy.rows import UNBOUNDED
from shared.fleet import Zone

_STALE, _NOT_SERVED = CODE_OF[Rejection.STALE], CODE_OF[Rejection.MODEL_NOT_SERVED]
_FEATURE, _CONTEXT = CODE_OF[Rejection.FEATURE_MISSING], CODE_OF[Rejection.CONTEXT_TOO_SMALL]
_COOLING, _WAIT = CODE_OF[Rejection.COOLING_DOWN], CODE_OF[Rejection.WAIT_TOO_LONG]


class _Verdict(NamedTuple):
    """For each row the first reason that speaks against it, and how often each was the first."""

    codes: Codes
    fine: Flags
    counts: Mapping[Rejection, int]


class Bulk:
    """A fleet as columns."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def survey(self, asked: Question) -> Survey:
        """Judge all rows at once, then find the first places."""
        columns = self._columns
        model = columns.model(asked.need.model)
        codes, fine, counts = _verdict(columns, model, asked)
        rejected = sum(counts.values())
        places = Places(columns, model, fine, len(columns) - rejected, asked)
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
        permitted = _permitted(columns, asked.forbidden)
        served = model.served & permitted
        says, codes = columns.figures.says_what_it_serves, _verdict(columns, model, asked).codes
        return Shortage(
            model_unknown=bool(len(columns)) and bool((says & ~model.served).all()),
            feature_missing=bool(served.any()) and bool(_lacking(model, asked)[served].all()),
            context_open_ended=bool((model.room_tokens[served] == UNBOUNDED).any()),
            cooling_until_ms=self._cooling_until_ms(codes[permitted], permitted),
            excess_ms=self._excess_ms(asked, permitted & (codes == _WAIT)),
        )

    def _cooling_until_ms(self, codes: Codes, permitted: Flags) -> int | None:
        if not codes.size or (codes != _COOLING).any():
            return None
        return int(self._columns.figures.cooling_until_ms[permitted].min())

    def _excess_ms(self, asked: Question, waiting: Flags) -> float | None:
        if not waiting.any():
            return None
        return float(line_ms(self._columns, asked)[waiting].min()) - asked.wait_limit_ms


def _verdict(columns: Columns, model: ModelColumn, asked: Question) -> _Verdict:
    basis = _basis(columns, model, asked)
    codes = basis.codes
    for flags, code in _passing(columns, model, asked):
        codes = _with(codes, flags, code)
    return basis if codes is basis.codes else _counted(codes)


def _basis(columns: Columns, model: ModelColumn, asked: Question) -> _Verdict:
    """What stands against the rows whatever the request and the time: zones, the model, and the backends' own state.
    It is the same for most requests between two changes of the fleet."""
    key = columns.known(asked.need.model), *asked.forbidden.values()
    basis: _Verdict | None = columns.bases.get(key)
    if basis is None:
        codes = _with(columns.figures.by_itself, ~model.served, _NOT_SERVED)
        for zone, reason in asked.forbidden.items():
            if reason is not None:
                codes = _with(codes, columns.figures.zone == ZONES.index(zone), CODE_OF[reason])
        basis = columns.bases[key] = _counted(codes)
    return basis


def _passing(columns: Columns, model: ModelColumn, asked: Question) -> Iterator[tuple[Flags, int]]:
    """What stands against rows for now, or for this request."""
    need, now_ms, derived, figures = asked.need, asked.now_ms, columns.derived, columns.figures
    if derived.first_received_ms < now_ms - asked.stale_after_ms:
        yield figures.received_ms < now_ms - asked.stale_after_ms, _STALE
    if need.features:
        yield _lacking(model, asked), _FEATURE
    if need.certain_tokens > model.least_room_tokens:
        yield model.room_tokens < need.certain_tokens, _CONTEXT
    if derived.last_cooling_ms > now_ms:
        yield figures.cooling_until_ms > now_ms, _COOLING
    if derived.any_line:
        yield figures.has_line & (line_ms(columns, asked) > asked.wait_limit_ms), _WAIT


def _with(codes: Codes, flags: Flags, code: int) -> Codes:
    """`codes` with one more reason, which counts where it comes before the one that stands there."""
    # All bits are set where the flag is not, and so is the code that says nothing.
    said: Codes = (flags.view(np.uint8) - np.uint8(1)) | np.uint8(code)
    return np.minimum(codes, said, out=said)


def _counted(codes: Codes) -> _Verdict:
    counted = ((reason, int(np.count_nonzero(codes == code))) for reason, code in CODE_OF.items())
    return _Verdict(codes, codes == FINE, {reason: count for reason, count in counted if count})


def _permitted(columns: Columns, forbidden: Mapping[Zone, Rejection | None]) -> Flags:
    flags = np.array([forbidden[zone] is None for zone in ZONES])
    permitted: Flags = flags[columns.figures.zone]
    return permitted


def _lacking(model: ModelColumn, asked: Question) -> Flags:
    """Rows whose model lacks a feature that is needed."""
    flags = np.array([lacks_feature(declared, asked.need) for declared in model.feature_sets])
    lacking: Flags = flags[model.feature_set]
    return lacking


def _largest_context(model: ModelColumn, asked: Question) -> int | None:
    by_zone = zip(ZONES, model.largest_context_by_zone, strict=True)
    return max((largest for zone, largest in by_zone if asked.forbidden[zone] is None), default=0) or None
