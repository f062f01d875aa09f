"""The register of devices on disk: what is kept, who may read it, how long a token works, and a second router."""

from __future__ import annotations

import io
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from router.fleet.devices import DeviceBook, Devices, Refusal
from shared import enrolment, logs
from shared.enrolment import Join
from shared.errors import SettingsError, Unauthenticated
from shared.fleet import BackendState, Heartbeat, beat_bytes
from shared.state.port import Report, Signed
from shared.state.register import FileRegister
from shared.testing.clock import ManualClock


def _devices(path: Path, clock: ManualClock, *, required: bool = False) -> Devices:
    register = FileRegister(path, DeviceBook(), setting="devices.file", title="The register of devices")
    return Devices(register, clock, required=required)


def _join(token: str, backend_id: str = "pi-1", key: Ed25519PrivateKey | None = None) -> Join:
    key = key or Ed25519PrivateKey.generate()
    return Join(
        token=token,
        backend_id=backend_id,
        public_key=enrolment.encoded(key.public_key().public_bytes_raw()),
        proof=enrolment.encoded(key.sign(enrolment.joining(token, backend_id))),
    )


async def test_devices_outlive_the_router_and_tokens_are_not_written_down(tmp_path: Path) -> None:
    path, clock = tmp_path / "deep/devices.json", ManualClock()
    devices = _devices(path, clock)
    token = await devices.invite(60)
    device = await devices.enrol(_join(token))
    unused = await devices.invite(60)
    assert unused not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = _devices(path, clock)
    assert again.all() == (device,)
    assert (await again.enrol(_join(unused, "pi-2"))).backend_id == "pi-2"


async def test_a_token_works_for_a_limited_time(tmp_path: Path) -> None:
    clock = ManualClock()
    devices = _devices(tmp_path / "devices.json", clock)
    token = await devices.invite(60)
    await clock.advance(61)
    with pytest.raises(Unauthenticated) as refused:
        await devices.enrol(_join(token))
    assert refused.value.code == "invalid_token"


async def test_routers_that_share_the_file_agree(tmp_path: Path) -> None:
    path, clock = tmp_path / "devices.json", ManualClock()
    one, other = _devices(path, clock), _devices(path, clock)
    device = await one.enrol(_join(await other.invite(60)))
    assert other.all() == (device,)
    await other.revoke(device.device_id)
    assert not one.all()[0].is_active


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"devices": [{"device_id": 1}]}', b"\xff"])
def test_a_register_that_cannot_be_read_stops_the_start(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "devices.json"
    path.write_bytes(content)
    with pytest.raises(SettingsError):
        _devices(path, ManualClock())


async def test_what_cannot_be_written_is_said_and_not_done(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    devices = _devices(blocked / "devices.json", ManualClock())
    with pytest.raises(SettingsError):
        await devices.invite(60)


def _stored(device_id: str, key: Ed25519PrivateKey | None, *, backend_id: str = "pi-1", sequence: int = 1) -> Report:
    beat = Heartbeat(
        backend_id=backend_id, instance="instance-a", sequence=sequence, url="http://pi:1", state=BackendState.READY
    )
    body = beat_bytes(beat)
    if key is None:
        return Report(beat, 0)
    return Report(beat, 0, Signed(body, enrolment.signature_header(device_id, key.sign(enrolment.reporting(body)))))


async def test_stored_reports_are_checked_as_those_that_are_sent(tmp_path: Path) -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    devices = _devices(tmp_path / "devices.json", ManualClock())
    device_id = (await devices.enrol(_join(await devices.invite(60), key=key))).device_id
    good = _stored(device_id, key)
    assert devices.trusted([good]) == [good]
    assert good.signed is not None
    altered = replace(good, signed=Signed(good.signed.body.replace(b"ready", b"failed"), good.signed.signature))
    for forged in (_stored(device_id, None), _stored(device_id, other), _stored("0" * 32, other), altered):
        assert devices.trusted([forged]) == []
    assert devices.trusted([good]) == [good]
    unknown = _stored("", None, backend_id="nobody")
    assert devices.trusted([unknown]) == [unknown]
    strict = _devices(tmp_path / "devices.json", ManualClock(), required=True)
    assert strict.trusted([unknown, good]) == [good]
    await devices.revoke(device_id)
    assert devices.trusted([good]) == []


def test_a_refusal_of_a_stored_report_is_told_once(tmp_path: Path) -> None:
    sink = io.StringIO()
    logs.configure(stream=sink)
    devices = _devices(tmp_path / "devices.json", ManualClock(), required=True)
    for sequence in range(3):
        devices.trusted([_stored("", None, sequence=sequence)])
    assert sink.getvalue().count("stored_report_refused") == 1
    assert Refusal.UNSIGNED in sink.getvalue()
