"""What this router itself knows of each backend: breaker, requests in flight, observed speed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from router.dispatch.verdict import MEANINGS, Effect, Outcome
from shared.breaker import BreakerRules, CircuitBreaker
from shared.fleet import PROMPT_BUCKETS_TOKENS, Breaker
from shared.windows import Ewma

_ALPHA = 0.2
"""Weight of a new observation: half of the mean comes from the last three."""


class Ledger:
    """One backend identity. `on_change` is told every change, so that readers can keep what they derived."""

    def __init__(self, rules: BreakerRules, on_change: Callable[[], None] = lambda: None) -> None:
        self._changed = on_change
        self._breaker = CircuitBreaker(rules)
        self._ttft_ms = Ewma()
        self._by_prompt = [Ewma()] * (len(PROMPT_BUCKETS_TOKENS) + 1)
        self._decode = Ewma()
        self.in_flight = 0

    def breaker(self, now_ms: int) -> Breaker:
        return self._breaker.state(now_ms)

    def reopens_in_ms(self, now_ms: int) -> int:
        """Milliseconds until an open breaker lets a call through; 0 when it does."""
        return self._breaker.reopens_in_ms(now_ms)

    def enter(self, now_ms: int) -> bool:
        """Count one attempt; False when the breaker does not let it start. Ends with exactly one `leave`."""
        if not self._breaker.admit(now_ms):
            return False
        self.in_flight += 1
        self._changed()
        return True

    def leave(self, outcome: Outcome, now_ms: int) -> None:
        """End one attempt."""
        self.in_flight -= 1
        self._changed()
        effect = MEANINGS[outcome].effect
        if effect is Effect.HEAL:
            self._breaker.succeeded()
        elif effect is Effect.NONE:
            self._breaker.abandoned()
        else:
            self._breaker.failed(now_ms)
            if effect is Effect.TRIP and self._breaker.state(now_ms) is not Breaker.OPEN:
                self._breaker.trip(now_ms)

    def sign_of_life(self, now_ms: int) -> None:
        """A fresh report came from the backend itself: an open breaker may try it at once."""
        if self._breaker.state(now_ms) is Breaker.OPEN:
            self._breaker.retry_now(now_ms)
            self._changed()

    def observe_first_token(self, ttft_ms: float, bucket: int) -> None:
        self._ttft_ms = self._ttft_ms.updated(ttft_ms, alpha=_ALPHA)
        self._by_prompt[bucket] = self._by_prompt[bucket].updated(ttft_ms, alpha=_ALPHA)
        self._changed()

    def observe_decode(self, tokens: int, elapsed_ms: float) -> None:
        """Note `tokens` after the first one, over `elapsed_ms`."""
        if tokens > 0 and elapsed_ms > 0:
            self._decode = self._decode.updated(tokens * 1000.0 / elapsed_ms, alpha=_ALPHA)
            self._changed()

    @property
    def ttft_ms(self) -> float | None:
        return self._ttft_ms.value

    @property
    def ttft_ms_by_prompt(self) -> tuple[float | None, ...]:
        return tuple([each.value for each in self._by_prompt])

    @property
    def decode_tokens_per_s(self) -> float | None:
        return self._decode.value


class Ledgers:
    """All ledgers by backend identity: a backend id, and for reporting agents also the running instance."""

    def __init__(self, rules: BreakerRules) -> None:
        self._rules = rules
        self._of: dict[str, tuple[str, Ledger]] = {}
        self._on_change: Callable[[str], None] = lambda backend_id: None

    def listen(self, on_change: Callable[[str], None]) -> None:
        """Tell `on_change` the id of each backend of which something is new."""
        self._on_change = on_change

    def of(self, backend_id: str, instance: str | None = None) -> Ledger:
        """The ledger of a backend; a new `instance` starts with a clean one. None: whichever instance is known."""
        known = self._of.get(backend_id)
        if known is None or (instance is not None and known[0] != instance):
            known = (instance or "", Ledger(self._rules, lambda: self._on_change(backend_id)))
            self._of[backend_id] = known
        return known[1]

    def keep_only(self, wanted: Container[str]) -> None:
        """Drop ledgers of backends that have left and have nothing in flight."""
        for backend_id in [b for b, (_, ledger) in self._of.items() if b not in wanted and ledger.in_flight == 0]:
            del self._of[backend_id]

    def __iter__(self) -> Iterator[Ledger]:
        return (ledger for _, ledger in self._of.values())
