"""A large fleet as columns: what a decision reads of each backend, worked out once when the fleet changes.

Rows stand in the order of id and address, which is the order that breaks the last ties of a ranking. The columns of a
fleet in which a few backends changed are made from those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from router.policy.eligibility import is_full, load_of
from router.policy.model import Rejection
from router.policy.scoring import speed_ratio
from shared.fleet import PROMPT_BUCKETS_TOKENS, BackendSnapshot, BackendState, Breaker, ThermalLevel, Zone

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.uint8]
Flags = NDArray[np.bool_]

ZONES = tuple(Zone)
REJECTIONS = tuple(Rejection)
CODE_OF = {reason: code for code, reason in enumerate(REJECTIONS, start=1)}
"""A row's code while a reason speaks against it; 0 while none does."""
NEVER_MS = int(np.iinfo(np.int64).max)
UNBOUNDED = NEVER_MS
_BY_STATE = {
    BackendState.STARTING: CODE_OF[Rejection.NOT_READY],
    BackendState.FAILED: CODE_OF[Rejection.NOT_READY],
    BackendState.DRAINING: CODE_OF[Rejection.DRAINING],
}


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
class Derived:
    """What follows from the columns alone, and which steps they make needless."""

    in_cloud: Flags
    on_edge: Flags
    ahead: Floats
    """Service times that a new request waits, times the slots: never below 0."""
    load_ratio: Floats
    no_prefill: Flags
    no_tpot: Flags
    any_no_tpot: bool
    any_by_state: bool
    any_by_breaker: bool
    any_asleep: bool
    last_cooling_ms: int


@dataclass(frozen=True, slots=True)
class Columns:
    """The arrays, one row a backend. Times to first token are those of an idle backend; NaN stands for unmeasured."""

    backends: tuple[BackendSnapshot, ...]
    """The fleet in its own order."""
    rows: tuple[BackendSnapshot, ...]
    place: dict[str, int]
    """Row of each backend id."""
    zone: Codes
    """Index into `ZONES`."""
    by_state: Codes
    """Rejections that come before the model is looked at."""
    by_breaker: Codes
    by_heat_or_queue: Codes
    received_ms: Ints
    cooling_until_ms: Ints
    asleep: Flags
    """Scaled to zero."""
    says_what_it_serves: Flags
    load: Ints
    slots: Ints
    prefill_tokens_per_s: Floats
    """After heat."""
    tpot_ms: Floats
    observed_ms: Floats
    """Observed time to first token by prompt bucket, after heat: one row a bucket."""
    models: dict[str, ModelColumn]
    """Columns of the models that were asked for; filled in as they are."""
    derived: Derived

    def updated(self, backends: tuple[BackendSnapshot, ...]) -> Columns:
        """The columns of `backends`; what is the same object as here is not read again."""
        if len(backends) != len(self.backends):
            return columns_of(backends)
        changed = [(old, new) for old, new in zip(self.backends, backends, strict=True) if old is not new]
        if not changed:
            return self
        if any(old.backend_id != new.backend_id or old.url != new.url for old, new in changed):
            return columns_of(backends)
        rows = list(self.rows)
        arrays = {name: getattr(self, name).copy() for name in _READ}
        for _, new in changed:
            at = self.place[new.backend_id]
            rows[at] = new
            for name, (_, read) in _READ.items():
                arrays[name][..., at] = read(new)
        models = self.models if all(_serves_alike(old, new) for old, new in changed) else {}
        return _columns(backends, tuple(rows), self.place, models, arrays)

    def model(self, model_id: str) -> ModelColumn:
        """The column of a model, made when it is first asked for."""
        column = self.models.get(model_id)
        if column is None:
            column = self.models[model_id] = _model_column(self.rows, model_id)
        return column


def columns_of(backends: tuple[BackendSnapshot, ...]) -> Columns:
    """The columns of a fleet."""
    rows = tuple(sorted(backends, key=lambda b: (b.backend_id, b.url)))
    place = {backend.backend_id: at for at, backend in enumerate(rows)}
    arrays: dict[str, Any] = {
        name: np.ascontiguousarray(np.array([read(row) for row in rows], dtype=dtype).T)
        for name, (dtype, read) in _READ.items()
    }
    if not rows:
        arrays["observed_ms"] = np.empty((len(PROMPT_BUCKETS_TOKENS) + 1, 0))
    return _columns(backends, rows, place, {}, arrays)


def _columns(
    backends: tuple[BackendSnapshot, ...],
    rows: tuple[BackendSnapshot, ...],
    place: dict[str, int],
    models: dict[str, ModelColumn],
    arrays: dict[str, Any],
) -> Columns:
    in_cloud, no_tpot = arrays["zone"] == ZONES.index(Zone.CLOUD), np.isnan(arrays["tpot_ms"])
    load, slots = arrays["load"], arrays["slots"]
    derived = Derived(
        in_cloud=in_cloud,
        on_edge=~in_cloud,
        ahead=np.maximum(load - slots + 1, 0).astype(np.float64),
        load_ratio=load / slots,
        no_prefill=np.isnan(arrays["prefill_tokens_per_s"]),
        no_tpot=no_tpot,
        any_no_tpot=bool(no_tpot.any()),
        any_by_state=bool(arrays["by_state"].any()),
        any_by_breaker=bool(arrays["by_breaker"].any()),
        any_asleep=bool(arrays["asleep"].any()),
        last_cooling_ms=int(arrays["cooling_until_ms"].max(initial=-NEVER_MS)),
    )
    return Columns(backends=backends, rows=rows, place=place, models=models, derived=derived, **arrays)


def _model_column(rows: tuple[BackendSnapshot, ...], model_id: str) -> ModelColumn:
    entries = [row.model(model_id) for row in rows]
    largest = dict.fromkeys(ZONES, 0)
    room = np.array(
        [UNBOUNDED if e is None or e.context_tokens is None else e.context_tokens for e in entries], np.int64
    )
    for row, entry in zip(rows, entries, strict=True):
        if entry is not None and entry.context_tokens is not None:
            largest[row.zone] = max(largest[row.zone], entry.context_tokens)
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


def _serves_alike(old: BackendSnapshot, new: BackendSnapshot) -> bool:
    return old.models == new.models and old.zone is new.zone


def _by_breaker(backend: BackendSnapshot) -> int:
    closed = backend.breaker is Breaker.CLOSED or (backend.breaker is Breaker.HALF_OPEN and backend.in_flight <= 0)
    return 0 if closed else CODE_OF[Rejection.BREAKER_OPEN]


def _by_heat_or_queue(backend: BackendSnapshot) -> int:
    if backend.level is ThermalLevel.CRITICAL:
        return CODE_OF[Rejection.THERMAL_CRITICAL]
    return CODE_OF[Rejection.QUEUE_FULL] if is_full(backend, load_of(backend)) else 0


def _tpot_ms(backend: BackendSnapshot) -> float:
    rate = backend.decode_tokens_per_s
    return np.nan if rate is None else 1000.0 / (rate * speed_ratio(backend))


def _prefill(backend: BackendSnapshot) -> float:
    rate = backend.prefill_tokens_per_s
    return np.nan if rate is None else rate * speed_ratio(backend)


def _observed_ms(backend: BackendSnapshot) -> list[float]:
    speed, overall, by_prompt = speed_ratio(backend), backend.ttft_ms, backend.ttft_ms_by_prompt
    found: list[float] = []
    for bucket in range(len(PROMPT_BUCKETS_TOKENS) + 1):
        observed = by_prompt[bucket] if bucket < len(by_prompt) and by_prompt[bucket] is not None else overall
        found.append(np.nan if observed is None else observed / speed)
    return found


_READ: dict[str, tuple[Any, Callable[[BackendSnapshot], Any]]] = {
    "zone": (np.uint8, lambda b: ZONES.index(b.zone)),
    "by_state": (np.uint8, lambda b: _BY_STATE.get(b.state, 0)),
    "by_breaker": (np.uint8, _by_breaker),
    "by_heat_or_queue": (np.uint8, _by_heat_or_queue),
    "received_ms": (np.int64, lambda b: NEVER_MS if b.received_ms is None else b.received_ms),
    "cooling_until_ms": (np.int64, lambda b: -NEVER_MS if b.cooling_until_ms is None else b.cooling_until_ms),
    "asleep": (np.bool_, lambda b: b.state is BackendState.SCALED_TO_ZERO),
    "says_what_it_serves": (np.bool_, lambda b: bool(b.models) and b.state is not BackendState.STARTING),
    "load": (np.int64, load_of),
    "slots": (np.int64, lambda b: b.slots_total or 1),
    "prefill_tokens_per_s": (np.float64, _prefill),
    "tpot_ms": (np.float64, _tpot_ms),
    "observed_ms": (np.float64, _observed_ms),
}
