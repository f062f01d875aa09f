"""Who may report: enrolled devices and open invitations, kept in one file, and the check of each report.

An invitation is a token that works once and for a limited time; only its hash is kept. A device that is revoked is
remembered, so that neither its key nor unsigned reports in its name come back; its backend may be enrolled anew with
another key. Several routers may share the file: it is read again whenever it has changed.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from shared import enrolment, logs
from shared.clock import Clock
from shared.enrolment import Join
from shared.errors import Forbidden, InvalidRequest, NotFound, SettingsError, Unauthenticated
from shared.keys import hashed
from shared.state.port import Report

TOKEN_PREFIX = "ist-"  # noqa: S105 - how such tokens begin, none of them
_MOST_INVITATIONS = 256


@dataclass(frozen=True, slots=True)
class Device:
    """One enrolled device. `public_key` is unpadded base64url."""

    device_id: str
    backend_id: str
    public_key: str
    enrolled_unix_s: float
    revoked_unix_s: float | None = None

    @property
    def is_active(self) -> bool:
        """Whether its reports are taken."""
        return self.revoked_unix_s is None


@dataclass(frozen=True, slots=True)
class Invitation:
    """A token that has not been used yet, known by its hash."""

    token_sha256: str
    expires_unix_s: float


@dataclass(frozen=True, slots=True)
class Register:
    """The content of the file."""

    devices: tuple[Device, ...] = ()
    invitations: tuple[Invitation, ...] = ()
    version: int = field(default=1)


class Refusal(StrEnum):
    """Why a report is not taken."""

    REVOKED = "device_revoked"
    UNSIGNED = "device_signature_missing"
    UNKNOWN = "device_unknown"
    INVALID = "device_signature_invalid"


_WORDS = {
    Refusal.REVOKED: "This device was revoked. Join again with a new key.",
    Refusal.UNSIGNED: "Reports of this backend must be signed by its device.",
    Refusal.UNKNOWN: "This device is not enrolled for the backend that it reports for.",
    Refusal.INVALID: "The signature is not that of the device.",
}
_CONTENT = TypeAdapter(Register)


class Devices:
    """The register of one router. All calls are made in one event loop, and write to disk before they return."""

    def __init__(self, path: Path, clock: Clock, *, required: bool) -> None:
        self._path = path
        self._clock = clock
        self._required = required
        self._log = logs.get("devices")
        self._register = Register()
        self._stamp: tuple[int, int, int] | None = None
        self._verdicts: dict[str, tuple[Report, Register, Refusal | None]] = {}
        self._read()

    def all(self) -> tuple[Device, ...]:
        """Every device, revoked ones too, in the order in which they came."""
        self._read()
        return self._register.devices

    def invite(self, valid_s: float) -> str:
        """A new token."""
        self._read()
        token = TOKEN_PREFIX + secrets.token_urlsafe(24)
        open_ = self._open_invitations()[-(_MOST_INVITATIONS - 1) :]
        invitation = Invitation(hashed(token), self._clock.unix_s() + valid_s)
        self._write(replace(self._register, invitations=(*open_, invitation)))
        return token

    def enrol(self, join: Join) -> Device:
        """Use up the token and remember the device.

        Raises:
            Unauthenticated: the token is not known, used up or too old.
            InvalidRequest: the key is none, or the device does not hold it.
            Forbidden: the key was revoked, or the backend belongs to another device.
        """
        self._read()
        used = self._invitation(join.token)
        public_key = enrolment.decoded(join.public_key)
        signed = enrolment.joining(join.token, join.backend_id)
        if not _is_signed(public_key, signed, enrolment.decoded(join.proof)):
            raise InvalidRequest("The proof is not a signature by the key.", param="proof")
        device_id = enrolment.device_id_of(public_key)
        if any(each.device_id == device_id and not each.is_active for each in self._register.devices):
            raise Forbidden(_WORDS[Refusal.REVOKED], code=Refusal.REVOKED)
        holder = self._active(join.backend_id)
        if holder is not None and holder.device_id != device_id:
            raise Forbidden("Another device is enrolled for this backend. Revoke it first.", code="backend_taken")
        device = Device(device_id, join.backend_id, join.public_key, round(self._clock.unix_s(), 3))
        others = tuple(each for each in self._register.devices if each.device_id != device_id)
        rest = tuple(each for each in self._open_invitations() if each != used)
        self._write(Register((*others, device), rest))
        self._log.info("device_enrolled", device=device_id, backend=join.backend_id)
        return device

    def revoke(self, device_id: str) -> Device:
        """Take nothing from this device any more.

        Raises:
            NotFound: no such device is enrolled.
        """
        self._read()
        found = next((each for each in self._register.devices if each.device_id == device_id), None)
        if found is None:
            raise NotFound("No such device is enrolled.", param="device_id")
        revoked = replace(found, revoked_unix_s=found.revoked_unix_s or round(self._clock.unix_s(), 3))
        devices = tuple(revoked if each is found else each for each in self._register.devices)
        self._write(replace(self._register, devices=devices))
        self._log.info("device_revoked", device=device_id, backend=found.backend_id)
        return revoked

    def knows(self, header: str) -> bool:
        """Whether the signature names a device that has joined: then `check` decides, and no key is needed."""
        self._read()
        return self._signer(header) is not None

    def check(self, backend_id: str, body: bytes, header: str | None) -> None:
        """Refuse a report in the name of `backend_id` that is not its device's.

        Raises:
            Unauthenticated: it is not signed and has to be.
            Forbidden: by another device, by a revoked one, or not by the key that it names.
        """
        refusal = self._refusal(backend_id, body, header)
        if refusal is Refusal.UNSIGNED:
            raise Unauthenticated(_WORDS[refusal], code=refusal)
        if refusal is not None:
            raise Forbidden(_WORDS[refusal], code=refusal)

    def trusted(self, reports: Iterable[Report]) -> list[Report]:
        """Those of `reports`, which came by way of a store that others write to, that `check` would not refuse.

        A report is checked once for each state of the register. While the register cannot be read, it holds as it was.
        """
        with contextlib.suppress(SettingsError):
            self._read()
        verdicts = {report.heartbeat.backend_id: self._verdict(report) for report in reports}
        self._verdicts = verdicts
        return [report for report, _, refusal in verdicts.values() if refusal is None]

    def _verdict(self, report: Report) -> tuple[Report, Register, Refusal | None]:
        backend_id, signed = report.heartbeat.backend_id, report.signed
        known = self._verdicts.get(backend_id)
        if known is not None and known[0] is report and known[1] is self._register:
            return known
        refusal = self._refusal(
            backend_id, b"" if signed is None else signed.body, signed.signature if signed else None
        )
        if refusal is not None and refusal is not (known[2] if known is not None else None):
            self._log.warning("stored_report_refused", backend=backend_id, reason=refusal)
        return report, self._register, refusal

    def _refusal(self, backend_id: str, body: bytes, header: str | None) -> Refusal | None:
        known = [each for each in self._register.devices if each.backend_id == backend_id]
        holder = self._active(backend_id)
        signer = self._signer(header) if header is not None else None
        if signer is not None and not signer.is_active:
            return Refusal.REVOKED
        if holder is None and known:
            return Refusal.REVOKED
        if holder is None and not self._required and signer is None:
            return None  # nobody joined in this name: a signature by a key of elsewhere says nothing here
        if header is None:
            return Refusal.UNSIGNED
        if holder is None or signer is None or signer != holder:
            return Refusal.UNKNOWN
        return None if self._holds(holder, body, header) else Refusal.INVALID

    def _holds(self, device: Device, body: bytes, header: str) -> bool:
        signature = enrolment.read_signature(header)
        key = enrolment.decoded(device.public_key)
        return signature is not None and _is_signed(key, enrolment.reporting(body), signature[1])

    def _signer(self, header: str) -> Device | None:
        signature = enrolment.read_signature(header)
        if signature is None:
            return None
        return next((each for each in self._register.devices if each.device_id == signature[0]), None)

    def _active(self, backend_id: str) -> Device | None:
        return next((each for each in self._register.devices if each.backend_id == backend_id and each.is_active), None)

    def _open_invitations(self) -> tuple[Invitation, ...]:
        now_s = self._clock.unix_s()
        return tuple(each for each in self._register.invitations if each.expires_unix_s > now_s)

    def _invitation(self, token: str) -> Invitation:
        digest, found = hashed(token), None
        for each in self._open_invitations():
            if hmac.compare_digest(digest, each.token_sha256):
                found = each
        if found is None:
            raise Unauthenticated("This token is not known, was used, or is too old.", code="invalid_token")
        return found

    def _read(self) -> None:
        """Take over what another router has written."""
        try:
            status = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return
        try:
            self._register = _CONTENT.validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            raise SettingsError(f"The register of devices {self._path} cannot be read.", param="devices.file") from None
        self._stamp = stamp

    def _write(self, register: Register) -> None:
        half = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps(asdict(register), option=orjson.OPT_INDENT_2))
                file.flush()
                os.fsync(file.fileno())
            half.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                half.unlink()
            why = (error.strerror or "it cannot be written").lower()
            raise SettingsError(f"The register of devices {self._path}: {why}.", param="devices.file") from None
        self._register = register
        status = self._path.stat()
        self._stamp = (status.st_mtime_ns, status.st_size, status.st_ino)


def shown(devices: Iterable[Device]) -> list[dict[str, Any]]:
    """Devices as JSON values."""
    return [
        {
            "device_id": each.device_id,
            "backend_id": each.backend_id,
            "state": "active" if each.is_active else "revoked",
            "enrolled_unix_s": each.enrolled_unix_s,
            "revoked_unix_s": each.revoked_unix_s,
        }
        for each in devices
    ]


def _is_signed(public_key: bytes, data: bytes, signature: bytes) -> bool:
    # A router that no device joins never loads the library.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True
