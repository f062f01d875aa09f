"""How a device shows a router who it is: what it signs, what it sends when it joins, and how both are spelled.

A device has one Ed25519 key (RFC 8032). It joins with a token that works once; from then on the router takes reports
of that backend only with a signature by that key. What is signed names its purpose, so that a signature for one thing
is never one for another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shared.fleet import BackendId

DEVICES_ROUTE = "/fleet/v1/devices"
INVITATIONS_ROUTE = "/fleet/v1/invitations"
SIGNATURE_HEADER = "x-isthmus-device-signature"
"""`DEVICE_ID.SIGNATURE`, the signature as unpadded base64url."""
PUBLIC_KEY_BYTES, SIGNATURE_BYTES = 32, 64
_HEADER = re.compile(r"([0-9a-f]{32})\.([A-Za-z0-9_-]{86})")
_BEAT_PURPOSE = b"isthmus heartbeat v1\n"
_JOIN_PURPOSE = b"isthmus join v1\n"

Base64Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{43}$")]
Base64Signature = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{86}$")]


class Join(BaseModel):
    """What a device sends to be enrolled. `proof` shows that it holds the key; it is over `joining`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: str = Field(min_length=16, max_length=128)
    backend_id: BackendId
    public_key: Base64Key
    proof: Base64Signature


class Joined(BaseModel):
    """The router's answer."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    device_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    backend_id: BackendId


def device_id_of(public_key: bytes) -> str:
    """The name of a device: the first half of the sha256 of its public key."""
    return hashlib.sha256(public_key).hexdigest()[:32]


def reporting(body: bytes) -> bytes:
    """What is signed for a heartbeat whose bytes are `body`."""
    return _BEAT_PURPOSE + body


def joining(token: str, backend_id: str) -> bytes:
    """What is signed to join."""
    return _JOIN_PURPOSE + f"{token}\n{backend_id}".encode()


def signature_header(device_id: str, signature: bytes) -> str:
    """The value of the header."""
    return f"{device_id}.{encoded(signature)}"


def read_signature(value: str) -> tuple[str, bytes] | None:
    """Device and signature of the header's value; None where it is neither."""
    found = _HEADER.fullmatch(value)
    return None if found is None else (found[1], decoded(found[2]))


def encoded(raw: bytes) -> str:
    """Unpadded base64url."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """The bytes of unpadded base64url; empty where it is none."""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""
