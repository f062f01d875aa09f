"""Builds the router from its settings: the only place where adapters are made."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry

from router.audit.log import AuditLog
from router.audit.storage import AuditStorage, load_key
from router.dispatch.budget import RetryRules
from router.dispatch.clients import CloudClient, EdgeClient, new_session
from router.dispatch.dispatcher import Dispatcher
from router.dispatch.exchange import ExchangeLimits
from router.dispatch.health import Health
from router.dispatch.ledger import Ledgers
from router.dispatch.targets import Access, Targets
from router.fleet.devices import Devices
from router.fleet.directory import FleetDirectory
from router.fleet.poller import CapacityPoller, Polled
from router.fleet.watch import FleetWatch
from router.http.access import Doorkeeper
from router.http.application import Handlers, build
from router.http.devices import DeviceDesk
from router.http.explain import Explain
from router.http.fleet import Fleet
from router.http.inference import Inference, InferenceParts
from router.http.judge import Judge
from router.http.models import Models
from router.http.probes import Metrics, Probes
from router.policy.model import Policy, Slo
from router.policy.rules import build_policy
from router.privacy.classify import Classifier, TextScanner
from router.privacy.scanner import Scanner
from router.settings import (
    AuditSettings,
    DeviceSettings,
    PolicySettings,
    RouterSettings,
    ScanSettings,
    StateSettings,
    StaticModelSettings,
)
from shared.breaker import BreakerRules
from shared.clock import Clock
from shared.errors import SettingsError
from shared.fleet import ServedModel, Zone
from shared.http.lifecycle import Lifecycle
from shared.keys import ApiKey
from shared.settings import home
from shared.state.memory import MemoryStateStore
from shared.state.port import StateStore
from shared.telemetry import RouterMetrics, new_registry

STATE_TTL_S = 60.0
"""How long a silent agent is still listed, as stale; it is not used after `policy.stale_after_ms`."""


@dataclass(frozen=True, slots=True)
class Router:
    """A built router. `directory` and `registry` are there for tests and tools."""

    application: web.Application
    lifecycle: Lifecycle
    directory: FleetDirectory
    registry: CollectorRegistry


def check_binding(settings: RouterSettings) -> None:
    """Refuse to listen beyond loopback without keys.

    Raises:
        SettingsError: `param` is `router.keys`.
    """
    if not settings.keys and not _is_loopback(settings.host):
        raise SettingsError(
            f"Listening on {settings.host} would let anyone in the network use this router: set router.keys, "
            "or listen on 127.0.0.1.",
            param="router.keys",
        )


async def build_router(settings: RouterSettings, clock: Clock, *, scanner: TextScanner | None = None) -> Router:
    """Everything wired together, inside the running event loop; `scanner` may be one that was compiled before.

    Raises:
        SettingsError: a file, folder, policy or address in the settings does not work.
    """
    check_binding(settings)
    registry, lifecycle = new_registry(), Lifecycle()
    metrics = RouterMetrics(registry)
    doorkeeper = Doorkeeper([ApiKey(k.name, k.sha256, k.scopes) for k in settings.keys])
    audit_key = load_key(settings.audit.key_file or home() / "audit.key", create=True)
    storage, audit = _audit(settings.audit, audit_key, clock, metrics)
    health = Health(Ledgers(BreakerRules()), _targets(settings))
    store = open_store(settings.state, clock)
    session = new_session(connect_s=settings.timeouts.connect_s)
    watch, poller = _watchers(settings, store, session, clock)
    devices = _devices(settings.devices, clock)
    directory = FleetDirectory(watch, poller, health, clock)
    classifier = _classifier(settings.scan, clock, metrics, scanner or Scanner())
    judge = Judge(classifier, _policy(settings.policy), directory, clock, aliases=settings.aliases)
    parts = InferenceParts(
        lifecycle=lifecycle,
        doorkeeper=doorkeeper,
        judge=judge,
        dispatcher=_dispatcher(settings, session, health, clock),
        directory=directory,
        health=health,
        audit=audit,
        metrics=metrics,
        clock=clock,
        session_key=hashlib.sha256(b"session" + audit_key).digest(),
        body_limit_bytes=settings.limits.body_bytes,
        in_flight_limit=settings.limits.in_flight,
        keepalive_s=settings.keepalive_s,
    )
    inference = Inference(parts)
    handlers = Handlers(
        inference=inference,
        models=Models(doorkeeper, directory, settings.aliases),
        fleet=Fleet(doorkeeper, watch, directory, devices),
        devices=DeviceDesk(doorkeeper, devices, watch),
        explain=Explain(doorkeeper, judge, body_limit_bytes=settings.limits.body_bytes),
        probes=Probes(lifecycle),
        metrics=Metrics(doorkeeper, registry, metrics, directory, health, clock),
    )
    watching = (lambda: watch.run(settings.state.refresh_ms / 1000), lambda: poller.run(settings.capacity_interval_s))
    loops = (audit.run, inference.expire, *watching)
    after = (audit.flush, store.close, session.close, _closing(classifier.close, storage.close))
    application = build(handlers, before=(watch.refresh, poller.poll), loops=loops, after=after)
    return Router(application, lifecycle, directory, registry)


def _devices(settings: DeviceSettings, clock: Clock) -> Devices:
    return Devices(settings.file or home() / "devices.json", clock, required=settings.required)


def _watchers(
    settings: RouterSettings, store: StateStore, session: aiohttp.ClientSession, clock: Clock
) -> tuple[FleetWatch, CapacityPoller]:
    watch = FleetWatch(store, clock, last_known_ms=int(settings.state.last_known_s * 1000))
    return watch, CapacityPoller(session, _polled(settings), clock, limit_s=settings.capacity_interval_s)


def _audit(settings: AuditSettings, key: bytes, clock: Clock, metrics: RouterMetrics) -> tuple[AuditStorage, AuditLog]:
    storage = AuditStorage(settings.dir or home() / "audit", key, file_bytes=settings.file_bytes)
    log = AuditLog(storage, key, clock, queue_records=settings.queue_records, on_loss=metrics.audit_lost.inc)
    return storage, log


def _classifier(settings: ScanSettings, clock: Clock, metrics: RouterMetrics, scanner: TextScanner) -> Classifier:
    return Classifier(
        scanner,
        clock,
        timeout_s=settings.timeout_s,
        workers=settings.workers,
        on_incomplete=lambda cause: metrics.scanner_errors.labels(cause).inc(),
    )


def open_store(settings: StateSettings, clock: Clock) -> StateStore:
    """The state store that the settings name."""
    if settings.kind == "memory":
        return MemoryStateStore(clock, ttl_s=STATE_TTL_S)
    # A router on one device runs without the Redis client being installed.
    from shared.state.redis import RedisAddress, RedisStateStore  # noqa: PLC0415

    password = _secret(settings.password_file, "router.state.password_file")
    address = RedisAddress(url=settings.url, host=settings.host, port=settings.port, password=password)
    return RedisStateStore(address, clock, ttl_s=STATE_TTL_S)


def _dispatcher(settings: RouterSettings, session: aiohttp.ClientSession, health: Health, clock: Clock) -> Dispatcher:
    timeouts, retry = settings.timeouts, settings.retry
    return Dispatcher(
        {"edge": EdgeClient(session), "cloud": CloudClient(session)},
        health,
        limits=ExchangeLimits(
            first_token_s=timeouts.first_token_s,
            idle_s=timeouts.idle_s,
            answer_s=timeouts.answer_s,
            answer_bytes=settings.limits.answer_bytes,
        ),
        retry=RetryRules(
            ratio=retry.budget_ratio,
            floor_per_10s=retry.floor_per_10s,
            backoff_base_ms=retry.backoff_base_ms,
            backoff_cap_ms=retry.backoff_cap_ms,
        ),
        clock=clock,
        fraction=random.random,
    )


def _policy(settings: PolicySettings) -> Policy:
    return build_policy(
        mode=settings.mode,
        actions=settings.actions,
        slo=Slo(settings.slo.ttft_ms, settings.slo.tpot_ms),
        stale_after_ms=settings.stale_after_ms,
        default_output_tokens=settings.default_output_tokens,
        hysteresis_ratio=settings.hysteresis_ratio,
        dwell_ms=settings.dwell_ms,
    )


def _targets(settings: RouterSettings) -> Targets:
    configured = {
        cloud.id: Access(_secret(cloud.api_key_file, f"router.clouds.{cloud.id}.api_key_file"), cloud.rate_domain)
        for cloud in settings.clouds
    }
    shared_key = _secret(settings.edge_api_key_file, "router.edge_api_key_file")
    for edge in settings.edges:
        own = _secret(edge.api_key_file, f"router.edges.{edge.id}.api_key_file")
        configured[edge.id] = Access(own or shared_key)
    return Targets(configured, edge=Access(shared_key))


def _polled(settings: RouterSettings) -> tuple[Polled, ...]:
    targets = _targets(settings)
    clouds = [Polled(c.id, Zone.CLOUD, c.url, _served(c.models), targets.key_of(c.id)) for c in settings.clouds]
    edges = [Polled(e.id, e.zone, e.url, _served(e.models), targets.key_of(e.id)) for e in settings.edges]
    return (*clouds, *edges)


def _served(models: tuple[StaticModelSettings, ...]) -> tuple[ServedModel, ...]:
    return tuple(
        ServedModel(model_id=m.id, digest=m.digest, context_tokens=m.context_tokens, features=m.features)
        for m in models
    )


def _secret(path: Path | None, setting: str) -> str | None:
    if path is None:
        return None
    try:
        value = path.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0).lower() if isinstance(error, OSError) else "not text"
        raise SettingsError(f"The file {path} of {setting}: {reason}.", param=setting) from None
    if not value or not value.isascii() or any(c.isspace() for c in value):
        raise SettingsError(f"The file {path} of {setting} does not hold one key.", param=setting)
    return value


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _closing(*steps: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        for step in steps:
            step()

    return close
