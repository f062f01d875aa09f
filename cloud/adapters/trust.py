"""Whose adapters are served: signatures over their manifests, by the keys that the edge tier trusts too.

Ed25519 over the DSSE pre-authentication encoding (DSSE 1.0, protocol.md), in the same `manifest.sig` as edge packages
have. Once a key is trusted, what no trusted key vouches for is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path

import orjson
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from shared.dsse import PAYLOAD_TYPE, encoding
from shared.errors import SettingsError, SignatureInvalid, Unsigned, UntrustedKey


class Signer:
    """A private key from a PEM file; never printed, logged or echoed."""

    def __init__(self, path: Path) -> None:
        try:
            if path.stat().st_mode & 0o077:
                raise SettingsError(f"{path} can be read by others. Run: chmod 600 {path}", param="sign_with")
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise SettingsError(f"{path} is no Ed25519 private key in PEM form.", param="sign_with")
        self._key = key

    def sign(self, manifest: bytes) -> bytes:
        """The content of `manifest.sig`."""
        signature = base64.b64encode(self._key.sign(encoding(manifest))).decode()
        document = {
            "version": 1,
            "payload_type": PAYLOAD_TYPE,
            "signatures": [{"key_id": key_id_of(self._key.public_key()), "signature": signature}],
        }
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


class Trust:
    """Trusted keys by their ids. With none, nobody is asked."""

    def __init__(self, keys: Mapping[str, Ed25519PublicKey]) -> None:
        self._keys = keys

    @classmethod
    def in_folder(cls, folder: Path | None) -> Trust:
        """The keys in the PEM files of `folder`.

        Raises:
            SettingsError: a file there is no public key: trust is never less than what was asked for.
        """
        paths = sorted(folder.glob("*.pub")) if folder is not None and folder.is_dir() else []
        keys = [_public(path) for path in paths]
        return cls({key_id_of(key): key for key in keys})

    def judge(self, manifest: bytes, signatures: bytes | None) -> None:
        """Nothing, if a trusted key vouches for `manifest` or none is trusted.

        Raises:
            Unsigned: nobody signed it.
            UntrustedKey: only strangers did.
            SignatureInvalid: the signature is not over these bytes.
        """
        if not self._keys:
            return
        if signatures is None:
            raise Unsigned("The adapter is not signed, and keys are trusted here.", param="signature")
        try:
            found = {each["key_id"]: each["signature"] for each in orjson.loads(signatures)["signatures"]}
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise SignatureInvalid("The signature of the adapter cannot be read.", param="signature") from None
        known = [key_id for key_id in found if key_id in self._keys]
        if not known:
            raise UntrustedKey("The adapter is signed by nobody who is trusted here.", param="signature")
        for key_id in known:
            try:
                self._keys[key_id].verify(base64.b64decode(found[key_id], validate=True), encoding(manifest))
            except (InvalidSignature, binascii.Error, ValueError, TypeError):
                raise SignatureInvalid(
                    "The signature does not match the adapter's manifest.", param="signature"
                ) from None


def key_id_of(public: Ed25519PublicKey) -> str:
    """The name of a key: the sha256 of its public half as SubjectPublicKeyInfo."""
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _public(path: Path) -> Ed25519PublicKey:
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise SettingsError(f"{path} is no Ed25519 public key in PEM form.", param="trust")
    return key
