"""The register of devices on disk: what is kept, who may read it, how long a token works, and a second router."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from router.fleet.devices import Devices
from shared import enrolment
from shared.enrolment import Join
from shared.errors import SettingsError, Unauthenticated
from shared.testing.clock import ManualClock


def _join(token: str, backend_id: str = "pi-1") -> Join:
    key = Ed25519PrivateKey.generate()
    return Join(
        token=token,
        backend_id=backend_id,
        public_key=enrolment.encoded(key.public_key().public_bytes_raw()),
        proof=enrolment.encoded(key.sign(enrolment.joining(token, backend_id))),
    )


def test_devices_outlive_the_router_and_tokens_are_not_written_down(tmp_path: Path) -> None:
    path, clock = tmp_path / "deep/devices.json", ManualClock()
    devices = Devices(path, clock, required=False)
    token = devices.invite(60)
    device = devices.enrol(_join(token))
    unused = devices.invite(60)
    assert unused not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Devices(path, clock, required=False)
    assert again.all() == (device,)
    assert again.enrol(_join(unused, "pi-2")).backend_id == "pi-2"


async def test_a_token_works_for_a_limited_time(tmp_path: Path) -> None:
    clock = ManualClock()
    devices = Devices(tmp_path / "devices.json", clock, required=False)
    token = devices.invite(60)
    await clock.advance(61)
    with pytest.raises(Unauthenticated) as refused:
        devices.enrol(_join(token))
    assert refused.value.code == "invalid_token"


def test_routers_that_share_the_file_agree(tmp_path: Path) -> None:
    path, clock = tmp_path / "devices.json", ManualClock()
    one, other = Devices(path, clock, required=False), Devices(path, clock, required=False)
    device = one.enrol(_join(other.invite(60)))
    assert other.all() == (device,)
    other.revoke(device.device_id)
    assert not one.all()[0].is_active


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"devices": [{"device_id": 1}]}', b"\xff"])
def test_a_register_that_cannot_be_read_stops_the_start(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "devices.json"
    path.write_bytes(content)
    with pytest.raises(SettingsError):
        Devices(path, ManualClock(), required=False)


def test_what_cannot_be_written_is_said_and_not_done(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    devices = Devices(blocked / "devices.json", ManualClock(), required=False)
    with pytest.raises(SettingsError):
        devices.invite(60)
