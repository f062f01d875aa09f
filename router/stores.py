"""Opens what a router shares with others: fleet state, registers of keys and devices, and limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from router.fleet.devices import DeviceBook
from router.fleet.drains import DrainBook
from router.keys.book import KeyBook
from router.limits.memory import MemoryLimiter
from router.limits.port import Limiter
from router.settings import RouterSettings, StateSettings
from router.workers.member import Member, MemberLimiter, MemberStore
from shared.clock import Clock
from shared.settings import home
from shared.state.memory import MemoryStateStore
from shared.state.port import StateStore
from shared.state.register import FileRegister, Register

if TYPE_CHECKING:
    from shared.state.link import RedisLink

STATE_TTL_S = 60.0
"""How long a silent agent is still listed, as stale; it is not used after `policy.stale_after_ms`."""
_LEARN_S = 1.0
"""How often keys and devices that another router has changed are looked for."""

Loop = Callable[[], Coroutine[Any, Any, None]]


class Stores(NamedTuple):
    """All of it; `before` brings it up to date, `loops` keep it so, `after` ends it."""

    fleet: StateStore
    keys: Register[KeyBook]
    devices: Register[DeviceBook]
    drains: Register[DrainBook]
    limiter: Limiter
    before: tuple[Callable[[], Awaitable[None]], ...]
    loops: tuple[Loop, ...]
    after: tuple[Callable[[], Awaitable[None]], ...]


def open_stores(settings: RouterSettings, clock: Clock, member: Member | None = None) -> Stores:
    """In this process alone (of several workers: in their parent), or in Redis, as the settings say; inside the running
    event loop.

    Raises:
        SettingsError: an address, file or certificate in the settings does not work.
    """
    keys, devices = file_registers(settings, clock)
    drains = _file_of_drains(settings, clock)
    if settings.state.kind == "memory" and member is not None:
        return Stores(MemberStore(member, clock), keys, devices, drains, MemberLimiter(member), (), (), ())
    if settings.state.kind == "memory":
        store = MemoryStateStore(clock, ttl_s=STATE_TTL_S)
        return Stores(store, keys, devices, drains, MemoryLimiter(clock), (), (), (store.close,))
    return _in_redis(settings.state, clock, keys, devices, drains)


def _in_redis(
    state: StateSettings,
    clock: Clock,
    keys: FileRegister[KeyBook],
    devices: FileRegister[DeviceBook],
    drains: FileRegister[DrainBook],
) -> Stores:
    # A router on one device runs without the Redis client being installed.
    from router.limits.fallback import SharedLimiter  # noqa: PLC0415
    from router.limits.redis import RedisLimiter  # noqa: PLC0415
    from shared.state.agreed import AgreedRegister  # noqa: PLC0415
    from shared.state.redis import RedisStateStore  # noqa: PLC0415

    link = redis_link(state, clock)
    agreed_keys = AgreedRegister(keys, link, _register_key(state, "keys"))
    agreed_devices = AgreedRegister(devices, link, _register_key(state, "devices"))
    agreed_drains = AgreedRegister(drains, link, _register_key(state, "drains"))
    limiter = SharedLimiter(RedisLimiter(link, fleet=state.fleet), clock)

    async def learn() -> None:
        while True:
            await agreed_keys.refresh()
            await agreed_devices.refresh()
            await agreed_drains.refresh()
            await clock.sleep(_LEARN_S)

    store = RedisStateStore(link, clock, ttl_s=STATE_TTL_S, fleet=state.fleet)
    before = (agreed_keys.refresh, agreed_devices.refresh, agreed_drains.refresh)
    after = (limiter.leave, store.close)
    return Stores(store, agreed_keys, agreed_devices, agreed_drains, limiter, before, (learn, limiter.run), after)


def file_registers(
    settings: RouterSettings, clock: Clock | None = None
) -> tuple[FileRegister[KeyBook], FileRegister[DeviceBook]]:
    """The registers of this machine; with a `clock` they are looked at once a second.

    Raises:
        SettingsError: what stands in a file is no register.
    """
    keys = FileRegister(
        settings.keys_file or home() / "router-keys.json",
        KeyBook(),
        setting="router.keys_file",
        title="The register of keys",
        clock=clock,
    )
    devices = FileRegister(
        settings.devices.file or home() / "devices.json",
        DeviceBook(),
        setting="devices.file",
        title="The register of devices",
        clock=clock,
    )
    return keys, devices


def _file_of_drains(settings: RouterSettings, clock: Clock) -> FileRegister[DrainBook]:
    path = (settings.devices.file or home() / "devices.json").with_name("drains.json")
    title = "The register of drained backends"
    return FileRegister(path, DrainBook(), setting="devices.file", title=title, clock=clock)


async def with_keys(
    settings: RouterSettings, clock: Clock, use: Callable[[Register[KeyBook]], Awaitable[None]]
) -> None:
    """Let `use` work on the register of keys that routers with these settings go by."""
    keys, _ = file_registers(settings)
    if settings.state.kind == "memory":
        await use(keys)
        return
    from shared.state.agreed import AgreedRegister  # noqa: PLC0415 - needs the client of Redis

    link = redis_link(settings.state, clock)
    try:
        agreed = AgreedRegister(keys, link, _register_key(settings.state, "keys"))
        await agreed.refresh()
        await use(agreed)
    finally:
        await link.close()


def redis_link(state: StateSettings, clock: Clock) -> RedisLink:
    """The way to the Redis that the settings name."""
    from shared.state.link import RedisLink  # noqa: PLC0415 - needs the client of Redis

    return RedisLink(state.address("router.state"), clock)


def _register_key(state: StateSettings, name: str) -> str:
    return f"isthmus:{{{state.fleet}}}:v2:register:{name}"
