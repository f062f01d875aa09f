"""Which adapters this replica's engine has loaded, and under what name it knows each version.

vLLM finds cached prefixes by the adapter's name, so a new version under an old name would go on from blocks of the old
one. The engine is therefore given a name with the version in it; clients see theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from cloud.adapters.store import Adapter, AdapterStore, BaseModel, unknown_adapter


@dataclass(frozen=True, slots=True)
class EngineAdapters:
    """The engine's own load and unload; both take the engine's name, load also the folder."""

    load: Callable[[str, str], Awaitable[None]]
    unload: Callable[[str], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Loaded:
    """One version that the engine has."""

    engine_name: str
    digest: str
    users: int = 0
    """Requests that run with it."""


class ResidentAdapters:
    """At most `count` are loaded; the one used longest ago goes first, but none that a request runs with."""

    def __init__(
        self, store: AdapterStore, base: BaseModel, engine: EngineAdapters, *, count: int, rank_limit: int
    ) -> None:
        self._store = store
        self._base = base
        self._engine = engine
        self._count = count
        self._rank_limit = rank_limit
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._leaving: dict[str, Loaded] = {}
        """By the engine's name: what requests still run with, and no other gets."""
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def used(self, name: str) -> AsyncIterator[str]:
        """The engine's name for the current version of adapter `name`, which it knows until the block ends.

        The engine looks a name up some time after a request was given it, and more adapters than there is room for
        would else take each other's names away in between.

        Raises:
            NotFound: no adapter is called so.
            TrustError: it is not what was registered, or does not fit.
        """
        loaded = await self._taken(name)
        try:
            yield loaded.engine_name
        finally:
            loaded.users -= 1
            if loaded.engine_name in self._leaving or len(self._loaded) > self._count:
                async with self._lock:
                    await self._make_room()

    async def load(self, name: str) -> None:
        """Have the current version of adapter `name` in the engine before somebody waits for it; raises as `used`."""
        async with self.used(name):
            pass

    async def unload(self, name: str) -> None:
        """Let go of adapter `name`, which stays registered: the next request for it loads it again.

        Raises:
            NotFound: no adapter is called so, nor is one loaded.
        """
        async with self._lock:
            if name in self._loaded:
                self._let_go(name)
                await self._make_room()
            elif not await asyncio.to_thread(self._store.has, name):
                raise unknown_adapter()

    def resident(self) -> dict[str, str]:
        """Digest of each loaded adapter, by name."""
        return {name: loaded.digest for name, loaded in self._loaded.items()}

    async def _taken(self, name: str) -> Loaded:
        adapter = await asyncio.to_thread(self._store.current, name)
        engine_name = f"{self._base.model_id}:{name}@{adapter.manifest.fingerprint}"
        if (known := self._known(name, engine_name)) is not None:
            return known  # nor does it wait for another adapter that is being loaded
        async with self._lock:
            if (known := self._known(name, engine_name)) is not None:
                return known
            loaded = self._leaving.pop(engine_name, None) or await self._load(engine_name, adapter)
            loaded.users += 1
            if name in self._loaded:
                self._let_go(name)
            self._loaded[name] = loaded
            try:
                await self._make_room()
            except BaseException:  # whoever waited here has left, and runs nothing
                loaded.users -= 1
                raise
            return loaded

    def _known(self, name: str, engine_name: str) -> Loaded | None:
        """The version that is loaded already, with one more user."""
        known = self._loaded.get(name)
        if known is None or known.engine_name != engine_name:
            return None
        self._loaded.move_to_end(name)
        known.users += 1
        return known

    async def _load(self, engine_name: str, adapter: Adapter) -> Loaded:
        await asyncio.to_thread(self._store.verify, adapter, self._base, rank_limit=self._rank_limit)
        await self._engine.load(engine_name, str(adapter.folder))
        return Loaded(engine_name, adapter.manifest.digest)

    def _let_go(self, name: str) -> None:
        loaded = self._loaded.pop(name)
        self._leaving[loaded.engine_name] = loaded

    async def _make_room(self) -> None:
        """Let go of what is over the count, and have the engine forget what nobody uses any more."""
        idle = [name for name, loaded in self._loaded.items() if not loaded.users]
        for name in idle[: max(0, len(self._loaded) - self._count)]:
            self._let_go(name)
        for loaded in [each for each in self._leaving.values() if not each.users]:
            del self._leaving[loaded.engine_name]
            await self._engine.unload(loaded.engine_name)
