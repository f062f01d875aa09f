"""Detached signatures over a package's manifest: Ed25519 over the DSSE pre-authentication encoding of its bytes.

`manifest.sig` is canonical JSON: `{"payload_type", "signatures": [{"key_id", "signature" in base64}], "version": 1}`.
The manifest states name, sequence and every file with hash and size, so one signature vouches for all of them. Its
bytes must be canonical (see `manifest`): what was signed has one form. Encoding: DSSE 1.0, protocol.md.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Annotated, Literal

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from edge.packages.manifest import SIGNATURE_FILE, canonical
from edge.packages.signing_key import SigningKey
from shared.dsse import PAYLOAD_TYPE, encoding
from shared.errors import SignatureInvalid

SIGNATURES_LIMIT = 16
_FILE_LIMIT_BYTES = 64 << 10


class Signature(BaseModel):
    """One key's signature."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    signature: str = Field(max_length=128)


class Signatures(BaseModel):
    """The content of `manifest.sig`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    payload_type: Literal["application/vnd.isthmus.package-manifest.v1+json"] = PAYLOAD_TYPE
    signatures: tuple[Signature, ...] = Field(min_length=1, max_length=SIGNATURES_LIMIT)

    def encoded(self) -> bytes:
        """The bytes of `manifest.sig`."""
        return canonical(self.model_dump(mode="json"))


def sign(manifest: bytes, key: SigningKey, others: bytes | None = None) -> bytes:
    """The content of `manifest.sig` with a signature by `key`, beside those by other keys in `others`.

    Raises:
        SignatureInvalid: `manifest` is not canonical, or `others` cannot be read.
    """
    _require_canonical(manifest)
    kept = [each for each in (parse(others).signatures if others else ()) if each.key_id != key.key_id]
    own = Signature(key_id=key.key_id, signature=base64.b64encode(key.sign(encoding(manifest))).decode())
    return Signatures(signatures=tuple(sorted([*kept, own], key=lambda each: each.key_id))).encoded()


def parse(raw: bytes) -> Signatures:
    """The signatures in `raw`.

    Raises:
        SignatureInvalid: it is not a signature file.
    """
    try:
        return Signatures.model_validate_json(raw)
    except ValidationError:
        raise SignatureInvalid(f"{SIGNATURE_FILE} is not a signature file.", param="signature") from None


def check(manifest: bytes, signature: Signature, key: Ed25519PublicKey) -> None:
    """Check one signature.

    Raises:
        SignatureInvalid: it is not that key's over these bytes, or the bytes are not canonical.
    """
    _require_canonical(manifest)
    try:
        key.verify(base64.b64decode(signature.signature, validate=True), encoding(manifest))
    except (InvalidSignature, binascii.Error, ValueError):
        raise SignatureInvalid(
            "The signature does not match the manifest: one of the two was changed.", param="signature"
        ) from None


def read(folder: Path) -> bytes | None:
    """The bytes of the signature file in `folder`; None where there is none.

    Raises:
        SignatureInvalid: it cannot be read or is too long.
    """
    try:
        with (folder / SIGNATURE_FILE).open("rb") as file:
            raw = file.read(_FILE_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SignatureInvalid(f"{SIGNATURE_FILE} cannot be read: {error.strerror}.", param="signature") from None
    if len(raw) > _FILE_LIMIT_BYTES:
        raise SignatureInvalid(f"{SIGNATURE_FILE} has more than {_FILE_LIMIT_BYTES} bytes.", param="signature")
    return raw


def _require_canonical(manifest: bytes) -> None:
    try:
        is_canonical = canonical(orjson.loads(manifest)) == manifest
    except orjson.JSONDecodeError:
        is_canonical = False
    if not is_canonical:
        raise SignatureInvalid("The manifest is not canonical JSON.", param="manifest")
