"""Builds the router from its settings: the only place where adapters are made."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

from router.admin.wiring import Admin
from router.audit.files import load_key
from router.audit.log import AuditLog
from router.audit.storage import AuditStorage, Sync
from router.dispatch.budget import RetryRules
from router.dispatch.clients import CloudClient, EdgeClient
from router.dispatch.dispatcher import Dispatcher
from router.dispatch.exchange import ExchangeLimits
from router.dispatch.health import Health
from router.dispatch.ledger import Ledgers, OutlierRules
from router.dispatch.patience import Patience, PatienceRules
from router.dispatch.targets import Access, Targets
from router.dispatch.wire.pool import Pool
from router.fleet.devices import Devices
from router.fleet.directory import FleetDirectory
from router.fleet.drains import Drains
from router.fleet.poller import CapacityPoller, Polled, new_session
from router.fleet.staleness import StaleWatch
from router.fleet.traffic import Traffic
from router.fleet.watch import FleetWatch
from router.http.access import Doorkeeper
from router.http.application import Handlers, build
from router.http.denials import Denials
from router.http.devices import DeviceDesk
from router.http.explain import Explain
from router.http.feedback import Feedback
from router.http.fleet import Fleet
from router.http.inference import Inference, InferenceParts
from router.http.judge import Judge
from router.http.models import Models
from router.http.openapi import OpenApi
from router.http.probes import Metrics, Probes
from router.http.quota import Quota
from router.http.signin import SignIns
from router.http.tally import Tally
from router.inforce import follow_policy
from router.keys.ring import Keyring
from router.privacy.classify import INLINE_BYTES, Classifier, TextScanner
from router.privacy.followed import FollowedScanner, WideningScanner
from router.privacy.kept_patterns import KeptPatterns
from router.privacy.returning import Answers
from router.privacy.sessions import Sessions
from router.rulebook.follow import PolicyFollower
from router.scanning import build_scanner
from router.settings import (
    AuditSettings,
    OutlierSettings,
    RouterSettings,
    ScanSettings,
    SessionSettings,
    StaticModelSettings,
)
from router.stores import Stores, file_registers, open_stores
from router.workers.member import Member, MemberStorage
from router.workers.sessions import MemberSessions
from shared.breaker import BreakerRules
from shared.clock import Clock
from shared.errors import SettingsError
from shared.fleet import ServedModel, Zone
from shared.http.lifecycle import Lifecycle
from shared.http.tls import ClientTls
from shared.http.tracing import trace
from shared.keys import ApiKey
from shared.local_keys import LocalKeys
from shared.secret_files import secret_in
from shared.settings import home
from shared.telemetry import Registry, RouterMetrics, new_registry
from shared.tracing.build import build_tracer

DRAINS_INTERVAL_S = 1.0
"""How soon a router sees what another one drained."""


@dataclass(frozen=True, slots=True)
class Router:
    """A built router. `directory`, `registry` and `denials` are there for tests and tools, `policies` for signals."""

    application: web.Application
    lifecycle: Lifecycle
    directory: FleetDirectory
    registry: Registry
    policies: PolicyFollower
    denials: Denials


class Place(NamedTuple):
    """What a process has besides its settings: the parent of which it is one of several workers, and the keys that its
    home knows."""

    member: Member | None = None
    local: LocalKeys | None = None


class _Fleet(NamedTuple):
    """Everything by which the fleet is known and reached."""

    session: aiohttp.ClientSession
    pool: Pool
    tls: ClientTls
    watch: FleetWatch
    poller: CapacityPoller
    health: Health
    directory: FleetDirectory
    devices: Devices
    drains: Drains
    traffic: Traffic
    stale: StaleWatch

    def before(self, stores: Stores) -> tuple[Callable[[], Awaitable[None]], ...]:
        """What has to be known ahead of the first request."""
        return (*stores.before, self.watch.refresh, self.poller.poll)


def check_binding(settings: RouterSettings) -> None:
    """Refuse to listen beyond loopback without keys.

    Raises:
        SettingsError: `param` is `router.keys`.
    """
    if not settings.keys and not _is_loopback(settings.host) and not file_registers(settings)[0].content.keys:
        raise SettingsError(
            f"Listening on {settings.host} would let anyone in the network use this router: set router.keys or make "
            "a key with isthmus router keys create, or listen on 127.0.0.1.",
            param="router.keys",
        )


async def build_router(
    settings: RouterSettings, clock: Clock, *, scanner: WideningScanner | None = None, place: Place | None = None
) -> Router:
    """Everything wired together, inside the running event loop; `scanner` may be one that was compiled before. Raises
    SettingsError: a file, folder, policy or address in the settings does not work.
    """
    member, local = place or Place()
    check_binding(settings)
    lifecycle, metrics = Lifecycle(), RouterMetrics(registry := new_registry())
    tracer = build_tracer(settings.tracing, tier="router", on_spans=metrics.spans_ended_as)
    reader = FollowedScanner(scanner or build_scanner(settings.scan, kept=KeptPatterns(home() / "cache" / "scanner")))
    storage, audit, audit_key = _audit(settings.audit, clock, metrics, member)
    stores = open_stores(settings, clock, member)
    denials = Denials(audit, clock)
    doorkeeper, signins = _doors(settings, audit_key, stores, denials, clock, local)
    keys_made = bool(stores.keys.content.keys)
    policies = follow_policy(settings, clock, audit, metrics, look_for=reader.look_for, keys_made=keys_made)
    fleet = _fleet(settings, stores, policies, clock)
    classifier = _classifier(settings.scan, clock, metrics, reader)
    parts = InferenceParts(
        lifecycle=lifecycle,
        doorkeeper=doorkeeper,
        quota=(quota := Quota(stores.limiter)),
        judge=Judge(classifier, policies, fleet.directory, aliases=settings.aliases),
        dispatcher=_dispatcher(settings, fleet, clock),
        directory=fleet.directory,
        health=fleet.health,
        traffic=fleet.traffic,
        audit=audit,
        metrics=metrics,
        clock=clock,
        sessions=_sessions(settings.sessions, audit_key, clock, member),
        answers=_answers(settings.scan, reader, metrics),
        session_key=hashlib.sha256(b"session" + audit_key).digest(),
        body_limit_bytes=settings.limits.body_bytes,
        in_flight_limit=settings.limits.in_flight,
        keepalive_s=settings.keepalive_s,
    )
    handlers = _handlers(settings, parts, fleet, registry, member)
    folder, drains = audit_folder(settings.audit), fleet.drains
    limit_ms = fleet.stale.limit_ms
    admin = Admin(handlers, signins, parts, policies, fleet.devices, drains, limit_ms, folder, member)
    loops = [handlers.inference.expire, denials.run, admin.pulse.run, *_loops(settings, audit, fleet, policies, clock)]
    loops += stores.loops
    closing = _closing(classifier.close, storage.close)
    after = (denials.close, audit.flush, quota.close, *stores.after, fleet.session.close, fleet.pool.close, closing)
    application = build(handlers, before=fleet.before(stores), loops=loops, after=after, more=admin.routes)
    trace(application, tracer, flush_limit_s=min(settings.tracing.flush_limit_s, settings.drain_limit_s))
    return Router(application, lifecycle, fleet.directory, registry, policies, denials)


def _handlers(
    settings: RouterSettings, parts: InferenceParts, fleet: _Fleet, registry: Registry, member: Member | None
) -> Handlers:
    doorkeeper, clock = parts.doorkeeper, parts.clock
    limit_bytes = settings.limits.body_bytes
    return Handlers(
        inference=Inference(parts, Tally(parts.metrics, registry)),
        models=Models(doorkeeper, fleet.directory, settings.aliases),
        fleet=Fleet(doorkeeper, fleet.watch, fleet.directory, fleet.devices, fleet.traffic, fleet.stale.limit_ms),
        devices=DeviceDesk(doorkeeper, fleet.devices, fleet.watch),
        explain=Explain(doorkeeper, parts.judge, parts.sessions, body_limit_bytes=limit_bytes),
        feedback=Feedback(doorkeeper, parts.audit, audit_folder(settings.audit), clock),
        probes=Probes(parts.lifecycle, parts.audit),
        metrics=Metrics(doorkeeper, registry, parts.metrics, fleet.directory, fleet.health, clock, fleet.stale, member),
        openapi=OpenApi(doorkeeper),
    )


def _loops(
    settings: RouterSettings, audit: AuditLog, fleet: _Fleet, policies: PolicyFollower, clock: Clock
) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """What goes on beside the requests."""
    loops: list[Callable[[], Coroutine[Any, Any, None]]] = [
        audit.run,
        lambda: fleet.watch.run(settings.state.refresh_ms / 1000),
        lambda: fleet.poller.run(settings.capacity_interval_s),
        lambda: policies.run(settings.policy.reload_s),
        lambda: fleet.drains.follow(DRAINS_INTERVAL_S),
        lambda: fleet.tls.following.run(clock),
        fleet.stale.run,
    ]
    return [*loops, audit.keep_synced] if settings.audit.sync is Sync.SECOND else loops


def _answers(settings: ScanSettings, scanner: TextScanner, metrics: RouterMetrics) -> Answers:
    return Answers(scanner, settings.answers, on_found=lambda kind: metrics.answer_findings.labels(kind).inc())


def _doors(
    settings: RouterSettings,
    audit_key: bytes,
    stores: Stores,
    denials: Denials,
    clock: Clock,
    local: LocalKeys | None,
) -> tuple[Doorkeeper, SignIns]:
    fixed = [ApiKey(k.name, k.sha256, k.scopes, k.limits()) for k in settings.keys]
    keys = Keyring(fixed, clock, stores.keys, local=() if local is None else local.known())
    signins = SignIns(keys.known, hashlib.sha256(b"console" + audit_key).digest(), clock)
    return Doorkeeper(keys, denials.note, signins=signins), signins


def _fleet(settings: RouterSettings, stores: Stores, policies: PolicyFollower, clock: Clock) -> _Fleet:
    health = Health(Ledgers(BreakerRules(), _outliers(settings.outliers)), _targets(settings))
    tls = ClientTls(settings.backend_tls.files(), setting="router.backend_tls")
    session = new_session(connect_s=settings.timeouts.connect_s, tls=tls.context)
    pool = Pool(tls=tls.context, connect_s=settings.timeouts.connect_s)
    devices = Devices(stores.devices, clock, required=settings.devices.required)
    drains = Drains(stores.drains, clock)
    last_known_ms = int(settings.state.last_known_s * 1000)
    watch = FleetWatch(stores.fleet, clock, last_known_ms=last_known_ms, trusted=devices.trusted)
    poller = CapacityPoller(session, _polled(settings), clock, limit_s=settings.capacity_interval_s)
    directory = FleetDirectory(watch, poller, health, clock, drained=drains)
    stale = StaleWatch(directory, lambda: policies.policy.stale_after_ms, clock)
    return _Fleet(session, pool, tls, watch, poller, health, directory, devices, drains, Traffic(), stale)


def audit_storage(settings: AuditSettings) -> tuple[AuditStorage, bytes]:
    """Where records are kept, and the key of their chain; one process alone may hold it.

    Raises:
        SettingsError: folder or key cannot be used, or another process writes there.
    """
    key = load_key(settings.key_file or home() / "audit.key", create=True)
    storage = AuditStorage(
        audit_folder(settings),
        key,
        file_bytes=settings.file_bytes,
        total_bytes=settings.total_bytes,
        sync=settings.sync,
    )
    return storage, key


def _audit(
    settings: AuditSettings, clock: Clock, metrics: RouterMetrics, member: Member | None
) -> tuple[AuditStorage | MemberStorage, AuditLog, bytes]:
    storage: AuditStorage | MemberStorage
    if member is None:
        storage, key = audit_storage(settings)
    else:
        key = load_key(settings.key_file or home() / "audit.key", create=True)
        storage = MemberStorage(member, asyncio.get_running_loop())
    log = AuditLog(storage, key, clock, queue_records=settings.queue_records, on_loss=metrics.audit_lost.inc)
    return storage, log, key


def _classifier(settings: ScanSettings, clock: Clock, metrics: RouterMetrics, scanner: TextScanner) -> Classifier:
    return Classifier(
        scanner,
        clock,
        timeout_s=settings.timeout_s,
        workers=settings.workers,
        inline_bytes=0 if settings.plugins else INLINE_BYTES,
        on_incomplete=lambda cause: metrics.scanner_errors.labels(cause).inc(),
    )


def _sessions(settings: SessionSettings, audit_key: bytes, clock: Clock, member: Member | None) -> Sessions:
    key = hashlib.sha256(b"sessions" + audit_key).digest()
    elsewhere = None if member is None else MemberSessions(member)
    return Sessions(clock, key, ttl_s=settings.ttl_s, limit=settings.limit, elsewhere=elsewhere)


def _dispatcher(settings: RouterSettings, fleet: _Fleet, clock: Clock) -> Dispatcher:
    timeouts, retry, pool = settings.timeouts, settings.retry, fleet.pool
    rules = PatienceRules(timeouts.first_token_s, timeouts.first_token_ratio, timeouts.first_token_most_s)
    return Dispatcher(
        {
            "edge": EdgeClient(pool),
            "cloud": CloudClient(pool, with_riders=settings.tracing.riders_to_clouds),
        },
        fleet.health,
        limits=ExchangeLimits(
            Patience(rules, clock, heard_ms=fleet.watch.heard_ms, stale_after_ms=fleet.stale.limit_ms),
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


def audit_folder(settings: AuditSettings) -> Path:
    """Where the log is kept."""
    return settings.dir or home() / "audit"


def _outliers(settings: OutlierSettings) -> OutlierRules:
    return OutlierRules(settings.failure_ratio, settings.least_attempts, int(settings.frozen_after_s * 1000))


def _targets(settings: RouterSettings) -> Targets:
    limit = settings.limits.backend_in_flight
    configured = {
        cloud.id: Access(
            secret_in(cloud.api_key_file, f"router.clouds.{cloud.id}.api_key_file"),
            cloud.rate_domain,
            cloud.max_in_flight or limit,
        )
        for cloud in settings.clouds
    }
    shared_key = secret_in(settings.edge_api_key_file, "router.edge_api_key_file")
    for edge in settings.edges:
        own = secret_in(edge.api_key_file, f"router.edges.{edge.id}.api_key_file")
        configured[edge.id] = Access(own or shared_key, in_flight_limit=edge.max_in_flight or limit)
    return Targets(configured, edge=Access(shared_key, in_flight_limit=limit))


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
