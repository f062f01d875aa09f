"""Builds, from the settings, what serves adapters, and says how much memory a plan must keep for them."""

from __future__ import annotations

from collections.abc import Callable

from edge.custody import adapters_of, package_to_serve
from edge.memory.capacity import loaded_bytes
from edge.packages.adapters.adapter import Adapter
from edge.runtime.port import Engine
from edge.service.adapters.pool import AdapterPool
from edge.service.adapters.registry import AdapterRegistry
from edge.service.adapters.resident import Limits
from edge.service.adapters.service import Adapters
from edge.service.memory_watch import MemoryWatch
from edge.service.served import Served
from edge.settings import EdgeSettings
from shared.clock import Clock
from shared.errors import TrustError
from shared.telemetry import EdgeMetrics


def adapters_bytes(settings: EdgeSettings, base_digest: str, warn: Callable[[TrustError], None]) -> int:
    """Memory to keep for adapters: of those registered for this model, as many as may be loaded at once."""
    survey = adapters_of(settings, warn).survey(settings.model).values()
    usable = [each for each in survey if isinstance(each, Adapter) and each.manifest.base_digest == base_digest]
    largest = sorted((each.size_bytes for each in usable), reverse=True)[: settings.adapters.count]
    return loaded_bytes(min(sum(largest), settings.adapters.memory))


def adapter_service(
    settings: EdgeSettings,
    engine: Engine,
    served: Served,
    memory: MemoryWatch,
    *,
    clock: Clock,
    metrics: EdgeMetrics,
    warn: Callable[[TrustError], None],
    on_change: Callable[[], None],
) -> Adapters:
    """The adapters of the served model; raises SettingsError where the trusted keys cannot be read."""
    registry = AdapterRegistry(
        adapters_of(settings, warn),
        settings.model,
        digest=lambda: served.facts.digest if served.facts is not None else None,
        package=lambda: package_to_serve(settings, warn),
        rank_limit=settings.adapters.rank_limit,
        clock=clock,
        on_change=on_change,
    )
    pool = AdapterPool(
        engine,
        Limits(count=settings.adapters.count, size_bytes=settings.adapters.memory),
        wait_s=settings.adapters.wait_s,
        metrics=metrics,
        may_overlap=lambda: memory.may_overlap,
    )
    return Adapters(registry, pool, takes_any=lambda: engine.takes_adapters)
