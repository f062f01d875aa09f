"""Which adapters this replica's engine has loaded, and under what name it knows each version.

vLLM finds cached prefixes by the adapter's name, so a new version under an old name would go on from blocks of the old
one. The engine is therefore given a name with the version in it; clients see theirs.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cloud.adapters.store import Adapter, AdapterStore, BaseModel, unknown_adapter


@dataclass(frozen=True, slots=True)
class EngineAdapters:
    """The engine's own load and unload; both take the engine's name, load also the folder."""

    load: Callable[[str, str], Awaitable[None]]
    unload: Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """One version that the engine has."""

    engine_name: str
    digest: str


class ResidentAdapters:
    """At most `count` are loaded; the one used longest ago goes first, and what runs with it goes on in the engine."""

    def __init__(
        self, store: AdapterStore, base: BaseModel, engine: EngineAdapters, *, count: int, rank_limit: int
    ) -> None:
        self._store = store
        self._base = base
        self._engine = engine
        self._count = count
        self._rank_limit = rank_limit
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._lock = asyncio.Lock()

    async def engine_name(self, name: str) -> str:
        """The engine's name for the current version of adapter `name`, loaded if it was not.

        Raises:
            NotFound: no adapter is called so.
            TrustError: it is not what was registered, or does not fit.
        """
        async with self._lock:
            adapter = await asyncio.to_thread(self._store.current, name)
            wanted = f"{self._base.model_id}:{name}@{adapter.manifest.fingerprint}"
            known = self._loaded.get(name)
            if known is None or known.engine_name != wanted:
                await self._load(name, wanted, adapter)
            self._loaded.move_to_end(name)
            return wanted

    async def unload(self, name: str) -> None:
        """Let go of adapter `name`, which stays registered: the next request for it loads it again.

        Raises:
            NotFound: no adapter is called so, nor is one loaded.
        """
        async with self._lock:
            loaded = self._loaded.pop(name, None)
            if loaded is not None:
                await self._engine.unload(loaded.engine_name)
            elif not await asyncio.to_thread(self._store.has, name):
                raise unknown_adapter()

    def resident(self) -> dict[str, str]:
        """Digest of each loaded adapter, by name."""
        return {name: loaded.digest for name, loaded in self._loaded.items()}

    async def _load(self, name: str, engine_name: str, adapter: Adapter) -> None:
        await asyncio.to_thread(self._store.verify, adapter, self._base, rank_limit=self._rank_limit)
        await self._engine.load(engine_name, str(adapter.folder))
        if (old := self._loaded.pop(name, None)) is not None:
            await self._engine.unload(old.engine_name)
        self._loaded[name] = Loaded(engine_name, adapter.manifest.digest)
        while len(self._loaded) > self._count:
            _, oldest = self._loaded.popitem(last=False)
            await self._engine.unload(oldest.engine_name)
