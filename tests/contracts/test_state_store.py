"""What every state store does, on memory and on a real Redis."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

from shared.fleet import BackendState, Heartbeat, ServedModel, ThermalLevel, beat_bytes
from shared.state.port import Signed, StateStore


def beat(backend_id: str = "pi-1", *, instance: str = "instance-a", sequence: int = 1, url: str = "") -> Heartbeat:
    return Heartbeat(
        backend_id=backend_id,
        instance=instance,
        sequence=sequence,
        url=url or f"http://{backend_id}:8081",
        state=BackendState.READY,
        models=(ServedModel(model_id="m", digest="sha256:" + "0" * 64, context_tokens=2048, features=("tools",)),),
        level=ThermalLevel.WARM,
        decode_tokens_per_s=41.5,
    )


async def test_a_beat_comes_back_as_it_was(store: StateStore) -> None:
    assert await store.publish(beat())
    [report] = await store.reports()
    assert report.heartbeat == beat()


async def test_what_a_beat_was_read_from_is_kept_with_it(store: StateStore) -> None:
    """Byte for byte, because that is what is signed; a beat without a signature takes the last one's away."""
    for sequence in (1, 2, 3):
        body = beat_bytes(beat(sequence=sequence)).replace(b'"version":1', b'"version" : 1,"of_later":[]')
        assert await store.publish(beat(sequence=sequence), Signed(body, f"device.signature-{sequence}"))
        [report] = await store.reports()
        assert report.heartbeat == beat(sequence=sequence)
        assert report.signed == Signed(body, f"device.signature-{sequence}")
    assert await store.publish(beat(sequence=4))
    [report] = await store.reports()
    assert (report.heartbeat.sequence, report.signed) == (4, None)
    assert await store.publish(beat(sequence=5), Signed(beat_bytes(beat(sequence=5)), "again"))
    [report] = await store.reports()
    assert report.signed == Signed(beat_bytes(beat(sequence=5)), "again")


async def test_reports_are_ordered_by_backend_id(store: StateStore) -> None:
    for name in ("zeta", "alpha", "mid"):
        await store.publish(beat(name))
    assert [r.heartbeat.backend_id for r in await store.reports()] == ["alpha", "mid", "zeta"]


async def test_an_older_beat_of_the_same_instance_is_refused(store: StateStore) -> None:
    assert await store.publish(beat(sequence=7))
    assert not await store.publish(beat(sequence=6))
    [report] = await store.reports()
    assert report.heartbeat.sequence == 7


async def test_a_repeated_beat_is_accepted_but_is_no_sign_of_life(store: StateStore) -> None:
    await store.publish(beat(sequence=7))
    [first] = await store.reports()
    await asyncio.sleep(0.02)
    assert await store.publish(beat(sequence=7))
    [second] = await store.reports()
    assert second.received_ms == first.received_ms


async def test_a_new_beat_moves_the_receive_time(store: StateStore) -> None:
    await store.publish(beat(sequence=1))
    [first] = await store.reports()
    await asyncio.sleep(0.02)
    await store.publish(beat(sequence=2))
    [second] = await store.reports()
    assert second.received_ms > first.received_ms


async def test_a_restart_takes_over_and_the_dead_process_stays_dead(store: StateStore) -> None:
    """FS-01: late beats of a replaced process do not displace the living one."""
    await store.publish(beat(instance="instance-a", sequence=900))
    assert await store.publish(beat(instance="instance-b", sequence=0))
    assert not await store.publish(beat(instance="instance-a", sequence=901))
    [report] = await store.reports()
    assert report.heartbeat.instance == "instance-b"


async def test_many_restarts_keep_a_bounded_memory_of_the_dead(store: StateStore) -> None:
    names = [f"instance-{n:03}" for n in range(30)]
    for name in names:
        assert await store.publish(beat(instance=name))
    for former, _ in list(pairwise(names))[-8:]:
        assert not await store.publish(beat(instance=former, sequence=5))
    [report] = await store.reports()
    assert report.heartbeat.instance == names[-1]


async def test_instances_with_odd_names_survive(store: StateStore) -> None:
    odd = 'a,b\n"c"\\ é漢'
    await store.publish(beat(instance=odd))
    assert await store.publish(beat(instance="instance-b"))
    assert not await store.publish(beat(instance=odd, sequence=99))


async def test_a_silent_backend_leaves_after_its_time(store: StateStore) -> None:
    """FS-01: a device that stops without goodbye is gone after the state lifetime."""
    await store.publish(beat("silent"))
    deadline = time.monotonic() + 5
    sequence = 0
    while time.monotonic() < deadline:
        sequence += 1
        await store.publish(beat("alive", sequence=sequence))
        names = [r.heartbeat.backend_id for r in await store.reports()]
        if names == ["alive"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the silent backend is still there")


async def test_it_comes_back_when_beats_resume(store: StateStore) -> None:
    await store.publish(beat(sequence=4))
    await asyncio.sleep(1.2)
    assert await store.reports() == ()
    assert await store.publish(beat(sequence=5))
    assert len(await store.reports()) == 1


async def test_forget_drops_one_backend(store: StateStore) -> None:
    await store.publish(beat("a"))
    await store.publish(beat("b"))
    await store.forget("a")
    await store.forget("never-seen")
    assert [r.heartbeat.backend_id for r in await store.reports()] == ["b"]


async def test_concurrent_publishers_end_with_the_newest(store: StateStore) -> None:
    answers = await asyncio.gather(*(store.publish(beat(sequence=n)) for n in range(30)))
    assert any(answers)
    [report] = await store.reports()
    assert report.heartbeat.sequence == 29
