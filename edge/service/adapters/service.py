"""What the rest of the agent asks of adapters: which ones a request means, and to have them while it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from edge.packages.adapters.adapter import Adapter
from edge.packages.staging import Incoming
from edge.runtime.port import EngineStatus
from edge.service.adapters.pool import AdapterPool
from edge.service.adapters.registry import AdapterRegistry
from edge.service.adapters.selection import Chosen, wanted_in
from shared.errors import NotFound
from shared.fleet import ServedModel

_REPORTED_LIMIT = 255
"""A heartbeat has room for 256 models, of which one is the base."""


class Adapters:
    """Adapters of the served model. `takes_any` says whether its engine can load them."""

    def __init__(self, registry: AdapterRegistry, pool: AdapterPool, *, takes_any: Callable[[], bool]) -> None:
        self._registry = registry
        self._pool = pool
        self._takes_any = takes_any

    async def chosen(self, body: dict[str, Any], base: str) -> tuple[Chosen, ...]:
        """The adapters that a validated body for `base` asks for, each in its newest version.

        Raises:
            NotFound: one is not registered.
            InvalidRequest: one cannot be used, or two fields disagree.
        """
        wanted = wanted_in(body, base)
        if wanted and not self._takes_any():
            raise NotFound("The engine of this model takes no adapters.", param=wanted[0].param)
        return tuple([Chosen(await self._registry.resolve(each.name, param=each.param), each.scale) for each in wanted])

    def using(self, chosen: tuple[Chosen, ...]) -> AbstractAsyncContextManager[None]:
        """See `AdapterPool.using`."""
        return self._pool.using(tuple(each.adapter for each in chosen))

    def follow(self, status: EngineStatus) -> None:
        """See `AdapterPool.follow`."""
        self._pool.follow(status)

    async def watch(self) -> None:
        """Keep the list of registered adapters up to date, until cancelled."""
        if self._takes_any():
            await self._registry.run()

    def close(self) -> None:
        """The engine has ended."""
        self._pool.close()

    def models(self, context_tokens: int, features: tuple[str, ...]) -> tuple[ServedModel, ...]:
        """The registered adapters as models of their own, for the router."""
        return tuple(
            ServedModel(model_id=str(each.name), digest=each.digest, context_tokens=context_tokens, features=features)
            for each in self._registry.known[:_REPORTED_LIMIT]
        )

    async def listing(self) -> list[dict[str, Any]]:
        """Every registered adapter, and whether it is loaded, pinned, in use."""
        if not self._takes_any():
            return []
        return [self.described(adapter) for adapter in await self._registry.look()]

    def described(self, adapter: Adapter) -> dict[str, Any]:
        """One adapter as the admin API shows it."""
        name, residents = str(adapter.name), self._pool.residents
        loaded = [each for each in residents.loaded if each.name == name]
        facts = adapter.manifest.facts
        return {
            "name": name,
            "digest": adapter.digest,
            "base_digest": adapter.manifest.base_digest,
            "rank": facts.rank,
            "alpha": facts.alpha,
            "size_bytes": adapter.size_bytes,
            "loaded": residents.holds([adapter.digest]),
            "loaded_digests": [each.digest for each in loaded],
            "pinned": name in residents.pinned,
            "in_use": sum(self._pool.users(each.digest) for each in loaded),
        }

    async def register(self, name: str, incoming: Incoming, base_digest: str | None) -> dict[str, Any]:
        """Install a version; raises as `AdapterRegistry.register`."""
        return self.described(await self._registry.register(name, incoming, base_digest))

    async def load(self, name: str) -> dict[str, Any]:
        """Load the newest version now; raises as `AdapterPool.using`."""
        adapter = await self._registry.resolve(name, param="name")
        await self._pool.load(adapter)
        return self.described(adapter)

    async def unload(self, name: str) -> dict[str, Any]:
        """Let go of every version; raises as `AdapterPool.unload`."""
        adapter = await self._registry.resolve(name, param="name")
        await self._pool.unload(str(adapter.name))
        return self.described(adapter)

    async def pin(self, name: str) -> dict[str, Any]:
        """Load it and keep it; raises as `AdapterPool.pin`."""
        adapter = await self._registry.resolve(name, param="name")
        await self._pool.pin(adapter)
        return self.described(adapter)

    async def unpin(self, name: str) -> dict[str, Any]:
        """Keep it no longer; raises as `AdapterPool.unpin`."""
        adapter = await self._registry.resolve(name, param="name")
        self._pool.unpin(str(adapter.name))
        return self.described(adapter)
