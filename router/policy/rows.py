"""What a decision reads of one backend, worked out once when the backend changes. Every form of a fleet is made of it.

The time to the first of its tokens is a straight line in what a request asks for. On an idle backend it is

    idle = prompt tokens * ms_per_prompt_token + idle_first_ms[prompt bucket]

where a backend that reports a rate has the slope, and one that is only observed has the constant. The queue ahead is
served `slots` at a time: with `load` L at S slots, the new one waits for (L - S + 1) / S turns. An agent says how long
turns lately lasted there, which makes a time of it (`wait_ms`). Elsewhere those ahead count as like this one:
it waits that many times as long as it takes itself, output included (`wait_ratio`).

Whether that line is too long to stand in is judged more carefully, because it refuses instead of ordering: only where
an agent reports its slots and both of its rates (`has_line`), never where no line stands, and with the length that
answers there were observed to have (`answer_ms`) in place of the one that this request asks for at most. Those ahead
may be quite unlike what went before, as long lists of texts are: what the agent itself expects counts if it is more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from router.policy import eligibility
from router.policy.model import Rejection
from router.policy.need import Need
from router.policy.scoring import ms_per_token, speed_ratio
from shared.fleet import PROMPT_BUCKETS_TOKENS, BackendSnapshot, BackendState, ServedModel, ThermalLevel, Zone

NEVER_MS = 2**63 - 1
UNBOUNDED = NEVER_MS
NOBODYS = ""
"""Stands for every model that no backend serves: callers can name any number of those."""
_BUCKETS = range(len(PROMPT_BUCKETS_TOKENS) + 1)
_NO_OFFSET = tuple(0.0 for _ in _BUCKETS)
_UNOBSERVED: tuple[float | None, ...] = tuple(None for _ in _BUCKETS)
_CLOUD, _STARTING, _ASLEEP = Zone.CLOUD, BackendState.STARTING, BackendState.SCALED_TO_ZERO


@dataclass(slots=True, eq=False)
class Row:
    """One backend. `by_…` are what speaks against it whatever is asked, in the order of `Rejection`; None: nothing.
    `received_ms` is `NEVER_MS` for one that never reports, `cooling_until_ms` its opposite for one that does not rest.

    Nobody changes a row once it is made. That is not enforced, because it would make one three times as dear, and
    each request that begins or ends makes one.
    """

    backend_id: str
    url: str
    zone: Zone
    in_cloud: bool
    level: ThermalLevel
    output_cap_tokens: int | None
    by_state: Rejection | None
    received_ms: int
    by_breaker: Rejection | None
    cooling_until_ms: int
    by_heat_or_queue: Rejection | None
    asleep: bool
    """Scaled to zero."""
    says_what_it_serves: bool
    load: int
    slots: int
    load_ratio: float
    wait_ratio: float
    """How often its own time a request waits here; 0 where turns are known to last `wait_ms` in all."""
    wait_ms: float
    ms_per_prompt_token: float
    idle_first_ms: tuple[float | None, ...]
    """By prompt bucket; None: not measured yet."""
    tpot_ms: float | None
    has_line: bool
    """Whether a line stands that is measured well enough to refuse for its length."""
    answer_ms: float | None
    """What an answer takes after its first token, as observed; None: nothing was."""
    slot_wait_ms: float
    """When a slot is free, by the agent's own account; 0: it gives none."""


class Entry(NamedTuple):
    """A row and what it says about one model: `served` is None where it does not serve it, `room_tokens` is
    `UNBOUNDED` where it declares no context. `is_open` says that nothing speaks against it but what depends on time
    and on what is asked."""

    row: Row
    served: ServedModel | None
    room_tokens: int
    is_open: bool


def row_of(backend: BackendSnapshot) -> Row:
    """The row of a backend."""
    load, slots, speed = eligibility.load_of(backend), backend.slots_total or 1, speed_ratio(backend)
    prefill, decode = backend.prefill_tokens_per_s, backend.decode_tokens_per_s
    cooling, turns = backend.cooling_until_ms, max(load - slots + 1, 0) / slots
    turn_s = backend.turn_s
    tpot_ms, observed_tokens = None if decode is None else ms_per_token(decode, speed), backend.answer_tokens
    return Row(
        backend_id=backend.backend_id,
        url=backend.url,
        zone=backend.zone,
        in_cloud=backend.zone is _CLOUD,
        level=backend.level,
        output_cap_tokens=backend.output_cap_tokens,
        by_state=eligibility.by_state(backend),
        received_ms=NEVER_MS if backend.received_ms is None else backend.received_ms,
        by_breaker=eligibility.by_breaker(backend),
        cooling_until_ms=-NEVER_MS if cooling is None else cooling,
        by_heat_or_queue=eligibility.by_heat_or_queue(backend, load),
        asleep=backend.state is _ASLEEP,
        says_what_it_serves=bool(backend.models) and backend.state is not _STARTING,
        load=load,
        slots=slots,
        load_ratio=load / slots,
        wait_ratio=turns if turn_s is None else 0.0,
        wait_ms=0.0 if turn_s is None else turns * turn_s * 1000,
        ms_per_prompt_token=0.0 if prefill is None else ms_per_token(prefill, speed),
        idle_first_ms=_NO_OFFSET if prefill is not None else _observed_ms(backend, speed),
        tpot_ms=tpot_ms,
        has_line=turns > 0 and _is_measured(backend),
        answer_ms=None if tpot_ms is None or observed_tokens is None else observed_tokens * tpot_ms,
        slot_wait_ms=(backend.slot_wait_s or 0.0) * 1000,
    )


def line_ms(row: Row, need: Need) -> float:
    """Time until the first token of a request that stands in the line of `row`, which has one."""
    prompt_ms = need.prompt_tokens * row.ms_per_prompt_token
    answer_ms = need.typical_tokens * (row.tpot_ms or 0.0) if row.answer_ms is None else row.answer_ms
    return prompt_ms + max((prompt_ms + answer_ms) * row.wait_ratio + row.wait_ms, row.slot_wait_ms)


def entry_of(row: Row, served: ServedModel | None) -> Entry:
    """What a backend says about a model that it serves as `served`, or not at all (None)."""
    room = UNBOUNDED if served is None or served.context_tokens is None else served.context_tokens
    against = row.by_state or row.by_breaker or row.by_heat_or_queue
    return Entry(row, served, room, served is not None and against is None and row.cooling_until_ms == -NEVER_MS)


def in_order(backends: Iterable[BackendSnapshot]) -> list[BackendSnapshot]:
    """By id and address, which breaks the last ties of a ranking."""
    return sorted(backends, key=lambda b: (b.backend_id, b.url))


def served_in(backends: Iterable[BackendSnapshot]) -> frozenset[str]:
    """Ids of the models that some backend serves."""
    return frozenset(served.model_id for backend in backends for served in backend.models)


def _is_measured(backend: BackendSnapshot) -> bool:
    """Whether an agent's own figures say how long its line takes. A cloud's line may be met by new replicas."""
    rates = backend.prefill_tokens_per_s, backend.decode_tokens_per_s
    return backend.zone is not _CLOUD and bool(backend.slots_total) and None not in rates


def _observed_ms(backend: BackendSnapshot, speed: float) -> tuple[float | None, ...]:
    """Observed time to first token by prompt bucket, after heat."""
    overall = backend.ttft_ms
    by_prompt = (*backend.ttft_ms_by_prompt, *_UNOBSERVED)[: len(_UNOBSERVED)]
    if overall is not None:
        by_prompt = tuple([overall if observed is None else observed for observed in by_prompt])
    return tuple([None if observed is None else observed / speed for observed in by_prompt])
