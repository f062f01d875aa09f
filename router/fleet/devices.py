"""Who may report: enrolled devices and open invitations, and the check of each report.

An invitation is a token that works once and for a limited time; only its hash is kept. A device that is revoked is
remembered, so that neither its key nor unsigned reports in its name come back; its backend may be enrolled anew with
another key. All routers of one fleet go by one register.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from shared import enrolment, logs
from shared.clock import Clock
from shared.enrolment import Join
from shared.errors import Forbidden, InvalidRequest, NotFound, Unauthenticated
from shared.keys import hashed
from shared.state.port import Report
from shared.state.register import Register

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

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


class _Index(NamedTuple):
    """A register as reports are checked by it: a fleet has thousands of them a second."""

    book: DeviceBook
    by_device: Mapping[str, Device]
    by_backend: Mapping[str, Sequence[Device]]
    verifiers: dict[str, Ed25519PublicKey]
    """Keys that were read, by device; filled in as they are."""

    @classmethod
    def of(cls, book: DeviceBook) -> Self:
        by_backend: dict[str, list[Device]] = {}
        for each in book.devices:
            by_backend.setdefault(each.backend_id, []).append(each)
        return cls(book, {each.device_id: each for each in reversed(book.devices)}, by_backend, {})

    def is_signed(self, device: Device, data: bytes, signature: bytes) -> bool:
        """Whether `signature` over `data` is that of a device of the book."""
        verifier = self.verifiers.get(device.device_id)
        if verifier is None:
            verifier = _verifier(enrolment.decoded(device.public_key))
            if verifier is None:
                return False
            self.verifiers[device.device_id] = verifier
        return _is_verified(verifier, data, signature)

    def holder(self, backend_id: str) -> Device | None:
        """The device that reports for a backend now."""
        return next((each for each in self.by_backend.get(backend_id, ()) if each.is_active), None)


@dataclass(frozen=True, slots=True)
class Invitation:
    """A token that has not been used yet, known by its hash."""

    token_sha256: str
    expires_unix_s: float


@dataclass(frozen=True, slots=True)
class DeviceBook:
    """What the register holds."""

    devices: tuple[Device, ...] = ()
    invitations: tuple[Invitation, ...] = ()
    version: int = 1
    revision: int = 0


class Refusal(StrEnum):
    """Why a report is not taken."""

    REVOKED = "device_revoked"
    UNSIGNED = "device_signature_missing"
    UNKNOWN = "device_unknown"
    INVALID = "device_signature_invalid"


_Verdict = tuple[Report, DeviceBook, Refusal | None]
"""A report, the state of the register that it was judged by, and why it is not taken."""
_WORDS = {
    Refusal.REVOKED: "This device was revoked. Join again with a new key.",
    Refusal.UNSIGNED: "Reports of this backend must be signed by its device.",
    Refusal.UNKNOWN: "This device is not enrolled for the backend that it reports for.",
    Refusal.INVALID: "The signature is not that of the device.",
}


class Devices:
    """The register of devices, as it is known here; changes are kept, or agreed upon, before a call returns."""

    def __init__(self, register: Register[DeviceBook], clock: Clock, *, required: bool) -> None:
        self._register = register
        self._clock = clock
        self._required = required
        self._log = logs.get("devices")
        self._index = _Index.of(register.content)
        self._verdicts: dict[str, _Verdict] = {}

    def all(self) -> tuple[Device, ...]:
        """Every device, revoked ones too, in the order in which they came."""
        return self._register.content.devices

    async def invite(self, valid_s: float) -> str:
        """A new token."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(24)
        invitation = Invitation(hashed(token), self._clock.unix_s() + valid_s)

        def with_invitation(book: DeviceBook) -> DeviceBook:
            open_ = self._open_invitations(book)[-(_MOST_INVITATIONS - 1) :]
            return replace(book, invitations=(*open_, invitation))

        await self._register.update(with_invitation)
        return token

    async def enrol(self, join: Join) -> Device:
        """Use up the token and remember the device.

        Raises:
            Unauthenticated: the token is not known, used up or too old.
            InvalidRequest: the key is none, or the device does not hold it.
            Forbidden: the key was revoked, or the backend belongs to another device.
        """
        public_key = enrolment.decoded(join.public_key)
        device_id = enrolment.device_id_of(public_key)
        device = Device(device_id, join.backend_id, join.public_key, round(self._clock.unix_s(), 3))

        def with_device(book: DeviceBook) -> DeviceBook:
            used = self._invitation(book, join.token)
            signed = enrolment.joining(join.token, join.backend_id)
            if not _is_signed(public_key, signed, enrolment.decoded(join.proof)):
                raise InvalidRequest("The proof is not a signature by the key.", param="proof")
            if any(each.device_id == device_id and not each.is_active for each in book.devices):
                raise Forbidden(_WORDS[Refusal.REVOKED], code=Refusal.REVOKED)
            holder = _active(book, join.backend_id)
            if holder is not None and holder.device_id != device_id:
                raise Forbidden("Another device is enrolled for this backend. Revoke it first.", code="backend_taken")
            others = tuple(each for each in book.devices if each.device_id != device_id)
            rest = tuple(each for each in self._open_invitations(book) if each != used)
            return replace(book, devices=(*others, device), invitations=rest)

        await self._register.update(with_device)
        self._log.info("device_enrolled", device=device_id, backend=join.backend_id)
        return device

    async def revoke(self, device_id: str) -> Device:
        """Take nothing from this device any more.

        Raises:
            NotFound: no such device is enrolled.
        """

        def without_device(book: DeviceBook) -> DeviceBook:
            found = next((each for each in book.devices if each.device_id == device_id), None)
            if found is None:
                raise NotFound("No such device is enrolled.", param="device_id")
            revoked = replace(found, revoked_unix_s=found.revoked_unix_s or round(self._clock.unix_s(), 3))
            return replace(book, devices=tuple(revoked if each is found else each for each in book.devices))

        book = await self._register.update(without_device)
        device = next(each for each in book.devices if each.device_id == device_id)
        self._log.info("device_revoked", device=device_id, backend=device.backend_id)
        return device

    def knows(self, header: str) -> bool:
        """Whether the signature names a device that has joined: then `check` decides, and no key is needed."""
        signature = enrolment.read_signature(header)
        return signature is not None and signature[0] in self._indexed().by_device

    def check(self, backend_id: str, body: bytes, header: str | None) -> None:
        """Refuse a report in the name of `backend_id` that is not its device's.

        Raises:
            Unauthenticated: it is not signed and has to be.
            Forbidden: by another device, by a revoked one, or not by the key that it names.
        """
        refusal = self._refusal(backend_id, body, header, self._indexed())
        if refusal is Refusal.UNSIGNED:
            raise Unauthenticated(_WORDS[refusal], code=refusal)
        if refusal is not None:
            raise Forbidden(_WORDS[refusal], code=refusal)

    def trusted(self, reports: Iterable[Report]) -> list[Report]:
        """Those of `reports`, which came by way of a store that others write to, that `check` would not refuse.

        A report is checked once for each state of the register.
        """
        index, before = self._indexed(), self._verdicts
        book, verdicts, trusted = index.book, {}, []
        for report in reports:
            backend_id = report.content.backend_id
            verdict = before.get(backend_id)
            if verdict is None or verdict[0] is not report or verdict[1] is not book:
                verdict = self._verdict(report, index, verdict)
            verdicts[backend_id] = verdict
            if verdict[2] is None:
                trusted.append(report)
        self._verdicts = verdicts
        return trusted

    def _verdict(self, report: Report, index: _Index, known: _Verdict | None) -> _Verdict:
        backend_id, signed = report.backend_id, report.signed
        body, header = (b"", None) if signed is None else (signed.body, signed.signature)
        refusal = self._refusal(backend_id, body, header, index)
        if refusal is not None and refusal is not (known[2] if known is not None else None):
            self._log.warning("stored_report_refused", backend=backend_id, reason=refusal)
        return report, index.book, refusal

    def _refusal(self, backend_id: str, body: bytes, header: str | None, index: _Index) -> Refusal | None:
        holder, signer = index.holder(backend_id), None
        signature = enrolment.read_signature(header) if header is not None else None
        if signature is not None:
            signer = index.by_device.get(signature[0])
        if signer is not None and not signer.is_active:
            return Refusal.REVOKED
        if holder is None and backend_id in index.by_backend:
            return Refusal.REVOKED
        if holder is None and not self._required and signer is None:
            return None  # nobody joined in this name: a signature by a key of elsewhere says nothing here
        if header is None:
            return Refusal.UNSIGNED
        if holder is None or signature is None or signer != holder:
            return Refusal.UNKNOWN
        return None if index.is_signed(holder, enrolment.reporting(body), signature[1]) else Refusal.INVALID

    def _indexed(self) -> _Index:
        """The register as it is now."""
        book = self._register.content
        if book is not self._index.book:
            self._index = _Index.of(book)
        return self._index

    def _open_invitations(self, book: DeviceBook) -> tuple[Invitation, ...]:
        now_s = self._clock.unix_s()
        return tuple(each for each in book.invitations if each.expires_unix_s > now_s)

    def _invitation(self, book: DeviceBook, token: str) -> Invitation:
        digest, found = hashed(token), None
        for each in self._open_invitations(book):
            if hmac.compare_digest(digest, each.token_sha256):
                found = each
        if found is None:
            raise Unauthenticated("This token is not known, was used, or is too old.", code="invalid_token")
        return found


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


def _active(book: DeviceBook, backend_id: str) -> Device | None:
    return next((each for each in book.devices if each.backend_id == backend_id and each.is_active), None)


def _is_signed(public_key: bytes, data: bytes, signature: bytes) -> bool:
    verifier = _verifier(public_key)
    return verifier is not None and _is_verified(verifier, data, signature)


def _verifier(public_key: bytes) -> Ed25519PublicKey | None:
    """The key; None where the bytes are none."""
    # A router that no device joins never loads the library.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        return Ed25519PublicKey.from_public_bytes(public_key)
    except ValueError:
        return None


def _is_verified(verifier: Ed25519PublicKey, data: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - as above

    try:
        verifier.verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True
