"""10,000 devices beat each second into one Redis while routers read: what that costs a router, and how old its view is.

    python -m loadtests.bench.fleet [--devices 10000] [--routers 4] [--seconds 20] [--news 0.3] [--signed]

Writers send real beats through the store's own script, spread evenly over each second; of `--news` of them something
but the sequence is different. Each router is a process of its own that does what a router does with the fleet, set up
as one: the watch's refresh every 250 ms with the check of who may report, and the snapshot that decisions read.
Reported are each router's processor time as a share of one core, and the age of a device's last beat in the snapshot
(p50, p99, most) against the second in which it beats. `--signed` enrols the devices, and every beat is signed.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import hashlib
import multiprocessing
import random
import resource
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from redis import Redis

from router.dispatch.health import Health
from router.dispatch.ledger import Ledgers
from router.dispatch.targets import Access, Targets
from router.fleet.devices import Device, DeviceBook, Devices
from router.fleet.directory import FleetDirectory
from router.fleet.poller import CapacityPoller
from router.fleet.watch import FleetWatch
from router.serve import settle_memory
from shared import enrolment
from shared.breaker import BreakerRules
from shared.clock import SystemClock
from shared.fleet import BackendState, Heartbeat, ServedModel, ThermalLevel, beat_bytes
from shared.state.address import RedisAddress
from shared.state.link import RedisLink
from shared.state.port import Signed
from shared.state.redis import PUBLISH, RedisStateStore, keys_of, publication
from shared.state.register import FileRegister
from shared.testing.redis_server import RedisServer

_REFRESH_S = 0.25
_TTL_S = 60.0
_STEPS = 20
"""Parts of a second in which a writer sends, so that beats come as evenly as those of devices."""
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one router: share of a core, beats that it learned of, and ages in milliseconds (p50, p99, most)."""

    cpu_ratio: float
    cpu_us_per_beat: float
    beats_per_s: float
    p50_ms: int
    p99_ms: int
    most_ms: int
    known: int


def beat(number: int, sequence: int, temperature_c: float) -> Heartbeat:
    """A beat as an agent with one model and one adapter sends it."""
    digest = "sha256:" + f"{number % 7:064x}"
    return Heartbeat(
        backend_id=f"device-{number:07d}",
        instance=f"instance-{number:07d}",
        sequence=sequence,
        url=f"http://10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:8081",
        state=BackendState.READY,
        models=(
            ServedModel(model_id="smollm2-135m-instruct", digest=digest, context_tokens=2048, features=("tools",)),
            ServedModel(model_id="smollm2-135m-instruct:support", digest=digest, context_tokens=2048),
        ),
        level=ThermalLevel.NOMINAL,
        temperature_c=temperature_c,
        slots_total=2,
        slots_busy=0,
        queued=0,
        queue_limit=16,
        prefill_tokens_per_s=800.0,
        decode_tokens_per_s=41.5,
        memory_available_bytes=2 << 30,
    )


@functools.cache
def key_of(number: int) -> Ed25519PrivateKey:
    """The key of a device."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"device %d" % number).digest())


def device(number: int) -> Device:
    """A device as a register holds it."""
    public = key_of(number).public_key().public_bytes_raw()
    return Device(enrolment.device_id_of(public), f"device-{number:07d}", enrolment.encoded(public), 0.0)


def signed(number: int, sent: Heartbeat) -> Signed:
    """A beat as its device signs it."""
    raw = beat_bytes(sent)
    signature = key_of(number).sign(enrolment.reporting(raw))
    return Signed(raw, enrolment.signature_header(device(number).device_id, signature))


def write(url: str, numbers: range, news_ratio: float, signs: bool, ready: Connection) -> None:
    """One writer: every device of `numbers` once a second, for ever."""
    client, draw, keys = Redis.from_url(url), random.Random(numbers.start), keys_of("fleet")
    client.script_load(PUBLISH.text)
    ready.send("ready")
    warm, sequence = dict.fromkeys(numbers, 40.0), 0
    while True:
        began_s, sequence = time.monotonic(), sequence + 1
        for step in range(_STEPS):
            with client.pipeline(transaction=False) as pipe:
                for number in numbers[step::_STEPS]:
                    if draw.random() < news_ratio:
                        warm[number] = round(40 + draw.random() * 20, 1)
                    sent = beat(number, sequence, warm[number])
                    arguments = publication(sent, int(_TTL_S * 1000), signed(number, sent) if signs else None)
                    pipe.evalsha(PUBLISH.sha, len(keys), *keys, *arguments)
                pipe.execute()
            time.sleep(max(0.0, began_s + (step + 1) / _STEPS - time.monotonic()))


def read(url: str, seconds: float, devices: int, signs: bool, answer: Connection) -> None:
    """One router: reads until it knows all devices, then measures for `seconds`."""
    with tempfile.TemporaryDirectory() as folder:
        path, clock = Path(folder) / "devices.json", SystemClock()
        register = FileRegister(path, DeviceBook(), setting="devices", title="The register", clock=clock)
        if signs:
            register.keep(DeviceBook(tuple(device(n) for n in range(devices)), revision=1))
        answer.send(asyncio.run(_measured(url, seconds, devices, register)))


async def _measured(url: str, seconds: float, devices: int, register: FileRegister[DeviceBook]) -> Cost:
    clock = SystemClock()
    store = RedisStateStore(RedisLink(RedisAddress(url=url), clock), clock, ttl_s=_TTL_S)
    known_devices = Devices(register, clock, required=False)
    watch = FleetWatch(store, clock, last_known_ms=15_000, trusted=known_devices.trusted)
    health = Health(Ledgers(BreakerRules()), Targets({}, edge=Access()))
    directory = FleetDirectory(watch, CapacityPoller(None, (), clock, limit_s=1), health, clock)  # type: ignore[arg-type]
    while len(watch.reports()) < devices:
        await watch.refresh()
        await asyncio.sleep(_REFRESH_S)
    settle_memory()
    ages: list[int] = []
    began_sequences = _sequences(watch)
    began_s, began_cpu_s, refreshes = time.monotonic(), _cpu_s(), 0
    while time.monotonic() - began_s < seconds:
        await watch.refresh()
        refreshes += 1
        now_ms = clock.now_ms()
        if refreshes % 4 == 1:  # a second's view for the figures; decisions read it as it stands
            fleet = directory.snapshot()
            ages += [now_ms - backend.received_ms for backend in fleet.backends if backend.received_ms is not None]
        await asyncio.sleep(_REFRESH_S)
    cpu_s, lasted_s, known = _cpu_s() - began_cpu_s, time.monotonic() - began_s, len(watch.reports())
    beats = max(1, _sequences(watch) - began_sequences)
    await store.close()
    ages.sort()
    return Cost(
        cpu_ratio=cpu_s / lasted_s,
        cpu_us_per_beat=cpu_s / beats * 1e6,
        beats_per_s=beats / lasted_s,
        p50_ms=ages[len(ages) // 2],
        p99_ms=ages[int(len(ages) * 0.99)],
        most_ms=ages[-1],
        known=known,
    )


def _sequences(watch: FleetWatch) -> int:
    """Every device counts its beats: their sum grows by one with each."""
    return sum(report.heartbeat.sequence for report in watch.reports().values())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _started(work: object, *arguments: object) -> tuple[SpawnProcess, Connection]:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=work, args=(*arguments, theirs), daemon=True)  # type: ignore[arg-type]
    process.start()
    return process, ours


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--routers", type=int, default=4)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--news", type=float, default=0.3, help="share of beats that say something new")
    parser.add_argument("--signed", action="store_true", help="devices that joined, whose beats are signed")
    given = parser.parse_args()
    server = RedisServer()
    server.start()
    step = -(-given.devices // given.writers)
    spans = [range(start, min(start + step, given.devices)) for start in range(0, given.devices, step)]
    running = [_started(write, server.url, span, given.news, given.signed) for span in spans]
    try:
        for _, ready in running:
            ready.recv()
        before = _redis_cpu_s(server)
        began_s = time.monotonic()
        readers = [_started(read, server.url, given.seconds, given.devices, given.signed) for _ in range(given.routers)]
        costs: list[Cost] = [answer.recv() for _, answer in readers]
        redis_ratio = (_redis_cpu_s(server) - before) / (time.monotonic() - began_s)
    finally:
        for process, _ in running:
            process.kill()
        server.stop()
    print(f"{given.devices} devices, one beat a second, {given.news:.0%} with news, {given.routers} routers")
    print("router  cpu of a core  beats/s  cpu per beat  at full rate  age p50   age p99      most  known")
    for n, cost in enumerate(costs, start=1):
        print(
            f"{n:6}  {cost.cpu_ratio:12.1%}  {cost.beats_per_s:7.0f}  {cost.cpu_us_per_beat:9.1f} us  "
            f"{_full(cost, given.devices):12.1%}  {cost.p50_ms:4} ms  {cost.p99_ms:5} ms  {cost.most_ms:5} ms  "
            f"{cost.known}"
        )
    print(f"redis: {redis_ratio:.1%} of a core")
    print(f"ratio of the largest router to its bound of 30 %: {max(_full(c, given.devices) for c in costs) / 0.30:.2f}")
    print(f"ratio of the largest p99 to its bound of 2 s: {max(c.p99_ms for c in costs) / 2000:.2f}")


def _full(cost: Cost, devices: int) -> float:
    """Share of a core at one beat of each device in a second, also where the writers could not keep up with that."""
    return cost.cpu_us_per_beat * devices / 1e6


def _redis_cpu_s(server: RedisServer) -> float:
    with Redis.from_url(server.url) as client:
        info = client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


if __name__ == "__main__":
    main()
