"""A large fleet as columns: the figures of `rows.Row`, one array each, made when the fleet changes.

Rows stand in the order of id and address, which is the order that breaks the last ties of a ranking. Columns never
change: those of a fleet in which a few backends changed are made from the ones before, and share with them every array
that came out the same, and all that follows from such arrays alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from router.policy.model import Rejection
from router.policy.rows import NEVER_MS, NOBODYS, UNBOUNDED, Row, in_order, row_of, served_in
from shared.fleet import PROMPT_BUCKETS_TOKENS, BackendSnapshot, Zone

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.uint8]
Flags = NDArray[np.bool_]

ZONES = tuple(Zone)
REJECTIONS = tuple(Rejection)
CODE_OF = {reason: code for code, reason in enumerate(REJECTIONS)}
"""A row's code while a reason speaks against it. Of several, the least is the first in the order of the checks."""
FINE = 255
"""A row's code while none does."""
_MOST_MODELS = 64
"""Models whose columns are kept. A fleet can serve thousands of adapters."""


@dataclass(frozen=True, slots=True)
class ModelColumn:
    """What each row says about one model. `room_tokens` is its context, `UNBOUNDED` where none is declared or it is not
    served; `feature_set` is an index into `feature_sets`, the distinct declarations."""

    served: Flags
    room_tokens: Ints
    least_room_tokens: int
    feature_set: Ints
    feature_sets: tuple[tuple[str, ...], ...]
    largest_context_by_zone: tuple[int, ...]
    """In the order of `ZONES`; 0 where none is declared."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The arrays that hold one figure of each row. NaN stands for what is not measured."""

    zone: Codes
    """Index into `ZONES`."""
    by_itself: Codes
    """Code of the first that state, breaker, heat and queue say."""
    received_ms: Ints
    cooling_until_ms: Ints
    asleep: Flags
    says_what_it_serves: Flags
    load: Ints
    slots: Ints
    load_ratio: Floats
    wait_ratio: Floats
    wait_ms: Floats
    ms_per_prompt_token: Floats
    idle_first_ms: Floats
    """One row a prompt bucket."""
    tpot_ms: Floats
    has_line: Flags
    answer_ms: Floats
    slot_wait_ms: Floats


@dataclass(frozen=True, slots=True)
class Derived:
    """What follows from the figures, and which steps that makes needless."""

    in_cloud: Flags
    on_edge: Flags
    unmeasured: tuple[Flags, ...]
    """By prompt bucket: nothing is known of the time to a first token."""
    any_unmeasured: tuple[bool, ...]
    no_tpot: Flags
    any_no_tpot: bool
    any_asleep: bool
    any_line: bool
    first_received_ms: int
    last_cooling_ms: int


@dataclass(frozen=True, slots=True)
class Columns:
    """A fleet, one row a backend."""

    backends: tuple[BackendSnapshot, ...]
    """In the order of the rows."""
    figures: Figures
    derived: Derived
    served: frozenset[str]
    """Ids of the models that some row serves."""
    models: dict[str, ModelColumn]
    """Columns of the models that were asked for; filled in as they are."""
    bases: dict[Any, Any]
    """What was concluded from zones, models and `by_itself` alone; filled in by who concludes it."""

    def updated(
        self, backends: tuple[BackendSnapshot, ...], changed: Iterable[int] | None = None, heard: Iterable[int] = ()
    ) -> Columns:
        """The columns of `backends`, which stand in the order of rows. `changed` are the rows that differ from here,
        where the caller knows them, and `heard` those that differ in `received_ms` alone; without `changed`, what is
        the same object as here counts as unchanged."""
        if len(backends) != len(self.backends):
            return columns_of(backends)
        if changed is None:
            changed = [at for at, new in enumerate(backends) if new is not self.backends[at]]
        pairs = [(at, self.backends[at], backends[at]) for at in changed]
        if any(old.backend_id != new.backend_id or old.url != new.url for _, old, new in pairs):
            return columns_of(backends)
        heard = tuple(heard)
        if not pairs and not heard:
            return self
        figures = _written(self.figures, [(at, row_of(old), row_of(new)) for at, old, new in pairs])
        if heard:
            figures = replace(figures, received_ms=_received(figures, backends, heard))
        alike = all(old.models == new.models and old.zone is new.zone for _, old, new in pairs)
        served, models = (self.served, self.models) if alike else (served_in(backends), {})
        kept = alike and figures.by_itself is self.figures.by_itself
        derived = _derived(figures, self.figures, self.derived)
        return Columns(backends, figures, derived, served, models, self.bases if kept else {})

    def model(self, model_id: str) -> ModelColumn:
        """The column of a model, made when it is first asked for."""
        model_id = self.known(model_id)
        column = self.models.get(model_id)
        if column is None:
            if len(self.models) >= _MOST_MODELS:
                self.models.clear()
                self.bases.clear()
            column = self.models[model_id] = _model_column(self.backends, model_id)
        return column

    def known(self, model_id: str) -> str:
        """The id of a model that is served here, or what stands for all others."""
        return model_id if model_id in self.served else NOBODYS

    def __len__(self) -> int:
        return len(self.backends)


def columns_of(backends: tuple[BackendSnapshot, ...]) -> Columns:
    """The columns of a fleet, whose ids differ, in whatever order."""
    ordered = tuple(in_order(backends))
    rows = [row_of(backend) for backend in ordered]
    arrays = {name: np.array([read(row) for row in rows], dtype) for name, (dtype, read) in _READ.items()}
    idle = np.array([row.idle_first_ms for row in rows], np.float64).reshape(len(rows), len(PROMPT_BUCKETS_TOKENS) + 1)
    figures = Figures(**arrays, idle_first_ms=np.ascontiguousarray(idle.T))
    return Columns(ordered, figures, _derived(figures, None, None), served_in(ordered), {}, {})


def _written(figures: Figures, changed: Iterable[tuple[int, Row, Row]]) -> Figures:
    """The figures with other rows in some places: an array is copied before its first change."""
    fresh: dict[str, Any] = {}
    for at, old, new in changed:
        for name, (_, read) in _READ.items():
            value = read(new)
            if value != read(old):
                if name not in fresh:
                    fresh[name] = getattr(figures, name).copy()
                fresh[name][at] = value
        if new.idle_first_ms != old.idle_first_ms:
            if "idle_first_ms" not in fresh:
                fresh["idle_first_ms"] = figures.idle_first_ms.copy()
            fresh["idle_first_ms"][:, at] = new.idle_first_ms
    return replace(figures, **fresh) if fresh else figures


def _received(figures: Figures, backends: tuple[BackendSnapshot, ...], heard: tuple[int, ...]) -> Ints:
    """When the last reports came, with those at the places `heard` anew."""
    received_ms = figures.received_ms.copy()
    times = [backends[at].received_ms for at in heard]
    received_ms[list(heard)] = [NEVER_MS if time_ms is None else time_ms for time_ms in times]
    return received_ms


def _derived(figures: Figures, before: Figures | None, known: Derived | None) -> Derived:
    """What follows from `figures`; what rests on arrays that are those of `before` is taken from `known`."""
    values: dict[str, Any] = {}
    for names, derive in _DERIVED:
        arrays = [getattr(figures, name) for name in names]
        if before is None or any(a is not getattr(before, n) for a, n in zip(arrays, names, strict=True)):
            values |= derive(*arrays)
    return Derived(**values) if known is None else replace(known, **values)


def _of_zones(zone: Codes) -> dict[str, Any]:
    in_cloud = zone == ZONES.index(Zone.CLOUD)
    return {"in_cloud": in_cloud, "on_edge": ~in_cloud}


def _of_first_tokens(idle_first_ms: Floats) -> dict[str, Any]:
    unmeasured = tuple(np.isnan(idle_first_ms))
    return {"unmeasured": unmeasured, "any_unmeasured": tuple(bool(each.any()) for each in unmeasured)}


def _of_tokens(tpot_ms: Floats) -> dict[str, Any]:
    no_tpot = np.isnan(tpot_ms)
    return {"no_tpot": no_tpot, "any_no_tpot": bool(no_tpot.any())}


_DERIVED: tuple[tuple[tuple[str, ...], Callable[..., dict[str, Any]]], ...] = (
    (("zone",), _of_zones),
    (("idle_first_ms",), _of_first_tokens),
    (("tpot_ms",), _of_tokens),
    (("asleep",), lambda asleep: {"any_asleep": bool(asleep.any())}),
    (("has_line",), lambda has_line: {"any_line": bool(has_line.any())}),
    (("received_ms",), lambda received_ms: {"first_received_ms": int(received_ms.min(initial=NEVER_MS))}),
    (("cooling_until_ms",), lambda until_ms: {"last_cooling_ms": int(until_ms.max(initial=-NEVER_MS))}),
)


def _model_column(backends: tuple[BackendSnapshot, ...], model_id: str) -> ModelColumn:
    entries = [backend.model(model_id) for backend in backends]
    largest = dict.fromkeys(ZONES, 0)
    room = np.array(
        [UNBOUNDED if e is None or e.context_tokens is None else e.context_tokens for e in entries], np.int64
    )
    for backend, entry in zip(backends, entries, strict=True):
        if entry is not None and entry.context_tokens is not None:
            largest[backend.zone] = max(largest[backend.zone], entry.context_tokens)
    known: dict[tuple[str, ...], int] = {(): 0}
    sets = [0 if entry is None else known.setdefault(entry.features, len(known)) for entry in entries]
    return ModelColumn(
        served=np.array([entry is not None for entry in entries], dtype=np.bool_),
        room_tokens=room,
        least_room_tokens=int(room.min(initial=UNBOUNDED)),
        feature_set=np.array(sets, dtype=np.int64),
        feature_sets=tuple(known),
        largest_context_by_zone=tuple(largest.values()),
    )


def _by_itself(row: Row) -> int:
    said = (reason for reason in (row.by_state, row.by_breaker, row.by_heat_or_queue) if reason is not None)
    return min((CODE_OF[reason] for reason in said), default=FINE)


_READ: dict[str, tuple[Any, Callable[[Row], Any]]] = {
    "zone": (np.uint8, lambda row: ZONES.index(row.zone)),
    "by_itself": (np.uint8, _by_itself),
    "received_ms": (np.int64, lambda row: row.received_ms),
    "cooling_until_ms": (np.int64, lambda row: row.cooling_until_ms),
    "asleep": (np.bool_, lambda row: row.asleep),
    "says_what_it_serves": (np.bool_, lambda row: row.says_what_it_serves),
    "load": (np.int64, lambda row: row.load),
    "slots": (np.int64, lambda row: row.slots),
    "load_ratio": (np.float64, lambda row: row.load_ratio),
    "wait_ratio": (np.float64, lambda row: row.wait_ratio),
    "wait_ms": (np.float64, lambda row: row.wait_ms),
    "ms_per_prompt_token": (np.float64, lambda row: row.ms_per_prompt_token),
    "tpot_ms": (np.float64, lambda row: row.tpot_ms),
    "has_line": (np.bool_, lambda row: row.has_line),
    "answer_ms": (np.float64, lambda row: row.answer_ms),
    "slot_wait_ms": (np.float64, lambda row: row.slot_wait_ms),
}
"""Type and figure of each array, in which NaN stands for None; `idle_first_ms` has one figure a prompt bucket."""
