"""Devices join with a token, report by their signature, and are refused once revoked; everything else in their name."""

from __future__ import annotations

import secrets
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared import enrolment
from shared.enrolment import DEVICES_ROUTE, INVITATIONS_ROUTE, SIGNATURE_HEADER
from shared.fleet import BackendState, Heartbeat, ServedModel
from shared.keys import generate, hashed
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.conftest import RunningRouter, StartRouter

ADMIN, REPORTER = generate(), generate()
KEYS = [
    {"name": "admin", "sha256": hashed(ADMIN), "scopes": ["admin", "inference"]},
    {"name": "reporter", "sha256": hashed(REPORTER), "scopes": ["fleet:report"]},
]


class Device:
    """A key and what it sends."""

    def __init__(self, backend_id: str = "pi-1") -> None:
        self.backend_id = backend_id
        self._key = Ed25519PrivateKey.generate()
        self._public = self._key.public_key().public_bytes_raw()
        self.device_id = enrolment.device_id_of(self._public)
        self._sequence = 0
        self._instance = secrets.token_hex(8)

    def joining(self, token: str) -> dict[str, Any]:
        proof = self._key.sign(enrolment.joining(token, self.backend_id))
        fields = {"token": token, "backend_id": self.backend_id}
        return fields | {"public_key": enrolment.encoded(self._public), "proof": enrolment.encoded(proof)}

    def beat(self, upstream: Upstream, **fields: Any) -> bytes:
        self._sequence += 1
        known = {
            "backend_id": self.backend_id,
            "instance": self._instance,
            "sequence": self._sequence,
            "url": upstream.url,
            "state": BackendState.READY,
            "models": (ServedModel(model_id=MODEL, context_tokens=2048),),
        }
        return Heartbeat(**(known | fields)).model_dump_json().encode()

    def signature(self, body: bytes) -> str:
        return enrolment.signature_header(self.device_id, self._key.sign(enrolment.reporting(body)))


async def _send(
    router: RunningRouter, path: str, body: bytes | None, *, key: str | None = None, method: str = "POST", **more: str
) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", **more} | ({"Authorization": f"Bearer {key}"} if key else {})
    async with router.session.request(method, router.url + path, data=body, headers=headers) as answer:
        raw = await answer.read()
        return answer.status, orjson.loads(raw) if raw else None


async def _invited(router: RunningRouter, key: str | None = None, **fields: int) -> str:
    status, answer = await _send(router, INVITATIONS_ROUTE, orjson.dumps(fields), key=key)
    assert status == 201
    return str(answer["token"])


async def _join(
    router: RunningRouter, device: Device, token: str, changes: dict[str, Any] | None = None
) -> tuple[int, Any]:
    return await _send(router, DEVICES_ROUTE, orjson.dumps(device.joining(token) | (changes or {})))


async def _report(
    router: RunningRouter, body: bytes, signature: str | None = None, key: str | None = None
) -> tuple[int, str | None]:
    more = {SIGNATURE_HEADER: signature} if signature is not None else {}
    status, answer = await _send(router, "/fleet/v1/heartbeats", body, key=key, **more)
    return status, None if answer is None else answer["error"]["code"]


async def test_a_device_that_joined_reports_by_its_signature_alone(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router(keys=KEYS)
    device = Device()
    assert (await _join(router, device, await _invited(router, ADMIN)))[0] == 201
    body = device.beat(edge)
    assert await _report(router, body, device.signature(body)) == (204, None)
    status, listed = await _send(router, DEVICES_ROUTE, None, key=ADMIN, method="GET")
    assert status == 200
    assert [(d["device_id"], d["backend_id"], d["state"]) for d in listed["devices"]] == [
        (device.device_id, "pi-1", "active")
    ]


async def test_nobody_else_reports_in_its_name(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router(keys=KEYS)
    device, other = Device(), Device("pi-2")
    for each in (device, other):
        await _join(router, each, await _invited(router, ADMIN))
    body = device.beat(edge)
    assert await _report(router, body, key=REPORTER) == (401, "device_signature_missing")
    assert await _report(router, body, other.signature(body)) == (403, "device_unknown")
    assert await _report(router, body + b" ", device.signature(body)) == (403, "device_signature_invalid")
    wrong_purpose = enrolment.signature_header(device.device_id, device._key.sign(body))
    assert await _report(router, body, wrong_purpose) == (403, "device_signature_invalid")
    stranger = Device()
    assert await _report(router, body, stranger.signature(body), REPORTER) == (403, "device_unknown")
    assert await _report(router, body, stranger.signature(body)) == (401, "invalid_api_key")
    assert not router.router.directory.snapshot().backends


@pytest.mark.parametrize("header", ["", "x", "a.b", "0" * 32 + "." + "!" * 86, "0" * 32 + "." + "A" * 85])
async def test_a_header_that_is_no_signature_is_none(start_router: StartRouter, edge: Upstream, header: str) -> None:
    router = await start_router(keys=KEYS)
    device = Device()
    await _join(router, device, await _invited(router, ADMIN))
    body = device.beat(edge)
    assert (await _report(router, body, header, REPORTER))[0] == 403
    assert (await _report(router, body, header))[0] == 401


async def test_a_revoked_device_is_gone_at_once_and_for_good(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    device = Device()
    await _join(router, device, await _invited(router))
    body = device.beat(edge)
    assert (await _report(router, body, device.signature(body)))[0] == 204
    async with router.ask() as answer:
        assert answer.status == 200
    path = f"{DEVICES_ROUTE}/{device.device_id}"
    assert (await _send(router, path, None, method="DELETE"))[0] == 204
    assert (await _send(router, path, None, method="DELETE"))[0] == 204  # again: nothing changes
    assert not router.router.directory.snapshot().backends
    body = device.beat(edge)
    assert await _report(router, body, device.signature(body)) == (403, "device_revoked")
    assert await _report(router, body) == (403, "device_revoked")
    body = device.beat(edge, backend_id="another-name")
    assert await _report(router, body, device.signature(body)) == (403, "device_revoked")
    assert (await _join(router, device, await _invited(router)))[1]["error"]["code"] == "device_revoked"
    successor = Device()
    assert (await _join(router, successor, await _invited(router)))[0] == 201
    body = successor.beat(edge)
    assert (await _report(router, body, successor.signature(body)))[0] == 204


async def test_a_token_works_once(start_router: StartRouter) -> None:
    router = await start_router()
    token = await _invited(router)
    assert (await _join(router, Device(), token))[0] == 201
    status, answer = await _join(router, Device("pi-2"), token)
    assert (status, answer["error"]["code"]) == (401, "invalid_token")
    assert token not in orjson.dumps(answer).decode()


async def test_the_key_of_a_name_is_not_replaced_by_another(start_router: StartRouter) -> None:
    router = await start_router()
    device = Device()
    assert (await _join(router, device, await _invited(router)))[0] == 201
    token = await _invited(router)
    assert (await _join(router, Device(), token))[1]["error"]["code"] == "backend_taken"
    assert (await _join(router, device, token))[0] == 201  # the same device again; the token was not used up


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"proof": "A" * 86}, "proof"),
        ({"public_key": "A" * 43}, "proof"),
        ({"public_key": "A"}, "public_key"),
        ({"backend_id": "pi-2"}, "proof"),
        ({"backend_id": "../etc"}, "backend_id"),
        ({"token": "short"}, "token"),
        ({"admin": True}, "admin"),
    ],
)
async def test_a_request_to_join_that_is_not_right_names_its_field(
    start_router: StartRouter, changes: dict[str, Any], param: str
) -> None:
    router = await start_router()
    status, answer = await _join(router, Device(), await _invited(router), changes)
    assert (status, answer["error"]["param"]) == (400, param)
    assert router.router.directory.snapshot().backends == ()


async def test_only_an_administrator_invites_lists_and_revokes(start_router: StartRouter) -> None:
    router = await start_router(keys=KEYS)
    for method, path in (
        ("POST", INVITATIONS_ROUTE),
        ("GET", DEVICES_ROUTE),
        ("DELETE", f"{DEVICES_ROUTE}/{'0' * 32}"),
    ):
        assert (await _send(router, path, b"{}" if method == "POST" else None, method=method))[0] == 401
        refused = await _send(router, path, b"{}" if method == "POST" else None, method=method, key=REPORTER)
        assert refused[0] == 403
    assert (await _send(router, f"{DEVICES_ROUTE}/{'0' * 32}", None, method="DELETE", key=ADMIN))[0] == 404


@pytest.mark.parametrize("valid_s", [0, -1, 10**9, "60", 1.5])
async def test_how_long_a_token_works_has_bounds(start_router: StartRouter, valid_s: object) -> None:
    router = await start_router()
    status, answer = await _send(router, INVITATIONS_ROUTE, orjson.dumps({"valid_s": valid_s}))
    assert (status, answer["error"]["param"]) == (400, "valid_s")


async def test_where_devices_are_required_nobody_else_reports(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router(devices={"required": True})
    assert await _report(router, Device("pi-9").beat(edge)) == (401, "device_signature_missing")
    device = Device()
    await _join(router, device, await _invited(router))
    body = device.beat(edge)
    assert (await _report(router, body, device.signature(body)))[0] == 204
    assert await _report(router, body) == (401, "device_signature_missing")


async def test_without_devices_everything_is_as_it_was(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    device = Device()
    body = device.beat(edge)
    assert (await _report(router, body, device.signature(body)))[0] == 204  # a key of another router says nothing here
