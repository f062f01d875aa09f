"""What this router learned about its backends, in one place: who fails, who rests, who is fast."""

from __future__ import annotations

from collections.abc import Callable

from router.dispatch.cooldown import Cooldowns
from router.dispatch.ledger import Ledgers
from router.dispatch.targets import Targets


class Health:
    """Ledgers by backend, rests by backend and by rate domain."""

    def __init__(self, ledgers: Ledgers, targets: Targets) -> None:
        self.ledgers = ledgers
        self.targets = targets
        self._domains = Cooldowns()
        self._backends = Cooldowns()
        self._on_change: Callable[[str], None] = lambda backend_id: None

    def listen(self, on_change: Callable[[str], None]) -> None:
        """Tell `on_change` the id of each backend of which something is new. What ends by time alone is not told."""
        self._on_change = on_change
        self.ledgers.listen(on_change)

    def rest_domain_of(self, backend_id: str, *, for_ms: int, now_ms: int) -> None:
        """Rest every backend that shares the quota of `backend_id`."""
        self._domains.cool(self.targets.rate_domain(backend_id), for_ms=for_ms, now_ms=now_ms)
        for sharing in self.targets.sharing(backend_id):
            self._on_change(sharing)

    def rest(self, backend_id: str, *, for_ms: int, now_ms: int) -> None:
        """Rest one backend."""
        self._backends.cool(backend_id, for_ms=for_ms, now_ms=now_ms)
        self._on_change(backend_id)

    def rests_until_ms(self, backend_id: str, now_ms: int) -> int | None:
        """When the backend may be asked again; None when it does not rest."""
        if not self._domains.untils_ms and not self._backends.untils_ms:
            return None
        limited = self.limited_until_ms(backend_id, now_ms)
        busy = self._backends.until_ms(backend_id, now_ms)
        if limited is None or busy is None:
            return busy if limited is None else limited
        return max(limited, busy)

    def limited_until_ms(self, backend_id: str, now_ms: int) -> int | None:
        """When the quota of the backend is free again; None when it is."""
        return self._domains.until_ms(self.targets.rate_domain(backend_id), now_ms)
