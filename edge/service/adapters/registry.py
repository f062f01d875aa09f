"""The adapters that are registered for the served model, read from the store; each name resolves to its newest version.

The store can change under a running agent (`isthmus edge adapters register`), so it is read whenever a name is
resolved, and looked through now and then for those who list it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edge.packages.adapters.adapter import Adapter, AdapterName
from edge.packages.adapters.store import AdapterStore, Registration
from edge.packages.package import Package
from edge.packages.staging import Incoming
from shared import logs
from shared.clock import Clock
from shared.errors import InvalidRequest, NotFound, TrustError

_INTERVAL_S = 2.0


class AdapterRegistry:
    """Adapters of the base model `base`. `digest` says which version of it is served (None: not known yet), `package`
    gives the installed one, to check a new adapter against."""

    def __init__(
        self,
        store: AdapterStore,
        base: str,
        *,
        digest: Callable[[], str | None],
        package: Callable[[], Package],
        rank_limit: int,
        clock: Clock,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._base = base
        self._digest = digest
        self._package = package
        self._rank_limit = rank_limit
        self._clock = clock
        self._on_change = on_change
        self._known: tuple[Adapter, ...] = ()
        self._log = logs.get("adapters")

    @property
    def known(self) -> tuple[Adapter, ...]:
        """Usable adapters as last looked through, by name."""
        return self._known

    async def resolve(self, adapter: str, *, param: str) -> Adapter:
        """The newest version of the adapter called `adapter` (without its base).

        Raises:
            NotFound: none of that name is registered for this model; `param` is the field that asked.
            InvalidRequest: it is registered, and cannot be used.
        """
        try:
            name = AdapterName.parse(f"{self._base}:{adapter}")
            found = await asyncio.to_thread(self._store.current, name)
        except (NotFound, InvalidRequest):
            raise NotFound(
                "No adapter of that name is registered for this model.", param=param, code="adapter_not_found"
            ) from None
        except TrustError as error:
            raise InvalidRequest(error.message, param=param, code=error.code) from None
        self._require_base(found, param)
        return found

    async def register(self, adapter: str, incoming: Incoming, base_digest: str | None) -> Adapter:
        """Install a version of the adapter called `adapter`; raises as `AdapterStore.register`."""
        wanted = Registration(
            name=AdapterName.parse(f"{self._base}:{adapter}"),
            incoming=incoming,
            source="admin API",
            rank_limit=self._rank_limit,
            base_digest=base_digest,
        )
        registered = await asyncio.to_thread(lambda: self._store.register(wanted, self._package()))
        await self.look()
        return registered

    async def look(self) -> tuple[Adapter, ...]:
        """Look through the store now; the adapters that can be used."""
        survey = await asyncio.to_thread(self._store.survey, self._base)
        found = tuple(
            each
            for each in survey.values()
            if isinstance(each, Adapter) and each.manifest.base_digest == self._digest()
        )
        if found != self._known:
            self._known = found
            self._on_change()
        return found

    async def run(self) -> None:
        """Look through the store again and again, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(_INTERVAL_S)

    def _require_base(self, found: Adapter, param: str) -> None:
        if found.manifest.base_digest != self._digest():
            raise InvalidRequest(
                "The adapter was registered for another version of this model; register it again.",
                param=param,
                code="base_mismatch",
            )
