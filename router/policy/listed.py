"""Judges a fleet backend by backend: the plain form of the algorithm, and the faster one for a few dozen backends."""

from __future__ import annotations

from operator import itemgetter

from router.policy import ordering
from router.policy.eligibility import ability_rejection, lacks_feature, load_of
from router.policy.model import Candidate, Rejected, Rejection
from router.policy.question import Question, Shortage, Survey
from router.policy.scoring import predict
from shared.fleet import BackendSnapshot, BackendState, ServedModel, Zone

_CLOUD, _STARTING = Zone.CLOUD, BackendState.STARTING

Ordered = list[tuple[ordering.Rank, Candidate]]


class Listed:
    """A fleet as the snapshot lists it."""

    __slots__ = ("_backends",)

    def __init__(self, backends: tuple[BackendSnapshot, ...]) -> None:
        self._backends = backends

    def survey(self, asked: Question) -> Survey:
        """Judge each backend, then sort."""
        need, forbidden = asked.need, asked.forbidden
        largest: int | None = None
        rejected: list[Rejected] = []
        counts: dict[Rejection, int] = {}
        ordered: Ordered = []
        for backend in self._backends:
            served = backend.model(need.model)
            load = load_of(backend)
            reason = forbidden[backend.zone]
            if reason is None:
                if served is not None and served.context_tokens is not None and served.context_tokens > (largest or 0):
                    largest = served.context_tokens
                reason = ability_rejection(backend, served, need, load, asked.stale_after_ms, asked.now_ms)
            if reason is not None:
                rejected.append(Rejected(backend.backend_id, backend.zone, reason))
                counts[reason] = counts.get(reason, 0) + 1
            elif served is not None:
                ordered.append(_candidate(backend, served, load, asked))
        ordered.sort(key=itemgetter(0))
        rejected.sort()
        return Survey(
            candidates=tuple([candidate for _, candidate in ordered]),
            rejected=tuple(rejected),
            rejected_counts=counts,
            largest_context_tokens=largest,
            preferred_is_slow=_preferred_is_slow(ordered, asked.bar),
            first_is_trial=_first_is_trial(ordered, asked.bar),
        )

    def shortage(self, asked: Question) -> Shortage:
        """Look again at what each backend serves."""
        backends, need, forbidden = self._backends, asked.need, asked.forbidden
        served = [s for b in backends if forbidden[b.zone] is None and (s := b.model(need.model)) is not None]
        return Shortage(
            model_unknown=bool(backends)
            and all(b.models and b.state is not _STARTING and b.model(need.model) is None for b in backends),
            feature_missing=bool(served) and all(lacks_feature(s.features, need) for s in served),
            context_open_ended=any(s.context_tokens is None for s in served),
            cooling_until_ms=self._cooling_until_ms(asked),
        )

    def _cooling_until_ms(self, asked: Question) -> int | None:
        untils: list[int] = []
        for backend in self._backends:
            if asked.forbidden[backend.zone] is not None:
                continue
            served, load = backend.model(asked.need.model), load_of(backend)
            reason = ability_rejection(backend, served, asked.need, load, asked.stale_after_ms, asked.now_ms)
            if reason is not Rejection.COOLING_DOWN or backend.cooling_until_ms is None:
                return None
            untils.append(backend.cooling_until_ms)
        return min(untils, default=None)


def _candidate(
    backend: BackendSnapshot, served: ServedModel, load: int, asked: Question
) -> tuple[ordering.Rank, Candidate]:
    need, cap = asked.need, backend.output_cap_tokens
    price = asked.cloud if backend.zone is _CLOUD else asked.edge
    prediction = predict(backend, need, load, asked.assumed_tpot_ms)
    if asked.cap_tokens is not None and (cap is None or cap > asked.cap_tokens):
        cap = asked.cap_tokens
    rank = ordering.rank(backend, served, need, load, prediction, price.penalty_ms, asked.bar)
    return rank, Candidate(
        backend.backend_id,
        backend.zone,
        backend.url,
        prediction[0],
        prediction[1],
        backend.level,
        cap,
        price.money,
        price.joules,
    )


def _preferred_is_slow(ordered: Ordered, bar: ordering.Bar) -> bool:
    """Whether a candidate of the preferred tier misses the objective or waits for its trials."""
    if bar.preferred_tier is None or not ordered or ordered[0][1].zone.tier == bar.preferred_tier:
        return False
    return any(r[0] in ordering.HELD_UP and c.zone.tier == bar.preferred_tier for r, c in ordered)


def _first_is_trial(ordered: Ordered, bar: ordering.Bar) -> bool:
    """Whether an unmeasured first place displaced a measured one of a tier that is as good."""
    if not ordered or ordered[0][1].predicted_ttft_ms is not None or ordered[0][0][0] > ordering.ALTERNATIVE:
        return False
    tier = ordered[0][1].zone.tier
    return any(
        c.predicted_ttft_ms is not None and (bar.preferred_tier is None or c.zone.tier == tier) for _, c in ordered[1:]
    )
