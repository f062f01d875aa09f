"""What this router itself knows of each backend: breaker, requests in flight, observed speed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

from router.dispatch.verdict import MEANINGS, Effect, Outcome
from shared.breaker import BreakerRules, CircuitBreaker
from shared.fleet import PROMPT_BUCKETS_TOKENS, Breaker
from shared.windows import Ewma

_SLOT_MS, _SLOTS = 1_000, 10
_ALPHA = 0.2
"""Weight of a new observation: half of the mean comes from the last three."""


@dataclass(frozen=True, slots=True)
class OutlierRules:
    """What sets a backend apart from a healthy one although no run of failures does: the share of failures among its
    last ten seconds, `least_attempts` at least, and open streams none of which moves for `frozen_after_ms`."""

    failure_ratio: float = 0.5
    least_attempts: int = 10
    frozen_after_ms: int = 10_000


class Ledger:
    """One backend identity. `on_change` is told every change, so that readers can keep what they derived."""

    def __init__(
        self,
        rules: BreakerRules,
        outliers: OutlierRules = OutlierRules(),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._changed = on_change
        self._breaker = CircuitBreaker(rules)
        self._outliers = outliers
        self._recent = [(-1, 0, 0)] * _SLOTS
        self._reading = 0
        self._moved_ms = -1 - outliers.frozen_after_ms  # nothing has yet
        self._ttft_ms = Ewma()
        self._by_prompt = [Ewma()] * (len(PROMPT_BUCKETS_TOKENS) + 1)
        self.ttft_ms_by_prompt: tuple[float | None, ...] = (None,) * len(self._by_prompt)
        self._decode = Ewma()
        self._answer = Ewma()
        self.in_flight = 0

    def breaker(self, now_ms: int) -> Breaker:
        """The state for decisions; a backend whose streams all stand still is as good as open."""
        return Breaker.OPEN if self.is_frozen(now_ms) else self._breaker.state(now_ms)

    def is_frozen(self, now_ms: int) -> bool:
        """Whether streams are waited for here, and none has moved for too long."""
        return self._reading > 0 and now_ms - self._moved_ms > self._outliers.frozen_after_ms

    def began_reading(self, now_ms: int) -> None:
        """A stream with content is waited for; ends with exactly one `ended_reading`."""
        if self._reading == 0:
            self._moved_ms = now_ms
        self._reading += 1

    def ended_reading(self) -> None:
        """That stream is no longer waited for."""
        self._reading -= 1

    def moved(self, now_ms: int) -> None:
        """A stream got on."""
        was_long = now_ms - self._moved_ms > self._outliers.frozen_after_ms
        self._moved_ms = now_ms
        if was_long:
            self._changed()

    def changes_at_ms(self, now_ms: int) -> int | None:
        """When `breaker` may be another because time has passed; None: not before a change is told."""
        dues = []
        if opens_in_ms := self._breaker.reopens_in_ms(now_ms):
            dues.append(now_ms + opens_in_ms)
        if self.in_flight > 0 and not self.is_frozen(now_ms):
            since_ms = self._moved_ms if self._reading > 0 else now_ms
            dues.append(since_ms + self._outliers.frozen_after_ms + 1)
        return min(dues, default=None)

    def enter(self, now_ms: int) -> bool:
        """Count one attempt; False when the breaker does not let it start. Ends with exactly one `leave`."""
        if self.is_frozen(now_ms) or not self._breaker.admit(now_ms):
            return False
        self.in_flight += 1
        self._changed()
        return True

    def leave(self, outcome: Outcome, now_ms: int) -> None:
        """End one attempt."""
        self.in_flight -= 1
        self._changed()
        effect = self._effect(outcome, now_ms)
        if effect is Effect.HEAL:
            self._breaker.succeeded()
        elif effect is Effect.NONE:
            self._breaker.abandoned()
        else:
            self._breaker.failed(now_ms)
            if effect is Effect.TRIP and self._breaker.state(now_ms) is not Breaker.OPEN:
                self._breaker.trip(now_ms)
        if effect is not Effect.NONE:
            self._judge(failed=effect is not Effect.HEAL, now_ms=now_ms)

    def _effect(self, outcome: Outcome, now_ms: int) -> Effect:
        """What it does to the breaker. A first token that did not come while other streams got on means a long line,
        not a fault: with an open breaker, whoever could wait would be refused too."""
        is_moving = now_ms - self._moved_ms <= self._outliers.frozen_after_ms
        return Effect.NONE if outcome is Outcome.FIRST_TOKEN_TIMEOUT and is_moving else MEANINGS[outcome].effect

    def _judge(self, *, failed: bool, now_ms: int) -> None:
        """Open the breaker where failures are too large a share, whatever stands between them."""
        slot = now_ms // _SLOT_MS
        at, attempts, failures = self._recent[slot % _SLOTS]
        if at != slot:
            attempts = failures = 0
        self._recent[slot % _SLOTS] = (slot, attempts + 1, failures + failed)
        if not failed or self._breaker.state(now_ms) is not Breaker.CLOSED:
            return
        counted = [each for each in self._recent if each[0] > slot - _SLOTS]
        total, bad = sum(each[1] for each in counted), sum(each[2] for each in counted)
        if total >= self._outliers.least_attempts and bad >= total * self._outliers.failure_ratio:
            self._breaker.trip(now_ms)
            self._recent = [(-1, 0, 0)] * _SLOTS

    def sign_of_life(self, now_ms: int) -> None:
        """A fresh report came from the backend itself: an open breaker may try it at once."""
        if self._breaker.state(now_ms) is Breaker.OPEN:
            self._breaker.retry_now(now_ms)
            self._changed()

    def observe_first_token(self, ttft_ms: float, bucket: int) -> None:
        self._ttft_ms = self._ttft_ms.updated(ttft_ms, alpha=_ALPHA)
        self._by_prompt[bucket] = self._by_prompt[bucket].updated(ttft_ms, alpha=_ALPHA)
        self.ttft_ms_by_prompt = tuple([each.value for each in self._by_prompt])
        self._changed()

    def observe_decode(self, tokens: int, elapsed_ms: float) -> None:
        """Note `tokens` after the first one, over `elapsed_ms`."""
        if tokens > 0 and elapsed_ms > 0:
            self._decode = self._decode.updated(tokens * 1000.0 / elapsed_ms, alpha=_ALPHA)
            self._answer = self._answer.updated(tokens + 1.0, alpha=_ALPHA)
            self._changed()

    @property
    def ttft_ms(self) -> float | None:
        return self._ttft_ms.value

    @property
    def decode_tokens_per_s(self) -> float | None:
        return self._decode.value

    @property
    def answer_tokens(self) -> float | None:
        """Output tokens of an answer."""
        return self._answer.value


class Ledgers:
    """All ledgers by backend identity: a backend id, and for reporting agents also the running instance."""

    def __init__(self, rules: BreakerRules, outliers: OutlierRules = OutlierRules()) -> None:
        self._rules = rules
        self._outliers = outliers
        self._of: dict[str, tuple[str, Ledger]] = {}
        self._on_change: Callable[[str], None] = lambda backend_id: None

    def listen(self, on_change: Callable[[str], None]) -> None:
        """Tell `on_change` the id of each backend of which something is new."""
        self._on_change = on_change

    def of(self, backend_id: str, instance: str | None = None) -> Ledger:
        """The ledger of a backend; a new `instance` starts with a clean one. None: whichever instance is known."""
        known = self._of.get(backend_id)
        if known is None or (instance is not None and known[0] != instance):
            known = (instance or "", Ledger(self._rules, self._outliers, lambda: self._on_change(backend_id)))
            self._of[backend_id] = known
        return known[1]

    def keep_only(self, wanted: Container[str]) -> None:
        """Drop ledgers of backends that have left and have nothing in flight."""
        for backend_id in [b for b, (_, ledger) in self._of.items() if b not in wanted and ledger.in_flight == 0]:
            del self._of[backend_id]

    def __iter__(self) -> Iterator[Ledger]:
        return (ledger for _, ledger in self._of.values())
