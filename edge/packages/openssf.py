"""Writes an OpenSSF model-signing bundle over a package folder, for other tools; nothing here reads one.

Format: a Sigstore bundle (v0.3) with a DSSE envelope around an in-toto statement of predicate type
`https://model_signing/signature/v1.0`: every file with its sha256, and as subject the sha256 over these digests in the
order of names. That specification knows elliptic-curve keys only, so it takes a key beside the package's own Ed25519.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edge.packages.durable import disk_errors, sync_folder, write_synced
from shared.dsse import encoding
from shared.errors import SettingsError

_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_HASHES: dict[str, type[hashes.HashAlgorithm]] = {
    "secp256r1": hashes.SHA256,
    "secp384r1": hashes.SHA384,
    "secp521r1": hashes.SHA512,
}


def bundle(folder: Path, key_file: Path) -> bytes:
    """The bundle over every file in `folder`, signed with the key in the PEM file `key_file`.

    Raises:
        SettingsError: that is no private key on P-256, P-384 or P-521.
    """
    key = _read_key(key_file)
    payload = orjson.dumps(_statement(folder))
    algorithm = _HASHES[key.curve.name]()
    signed = key.sign(encoding(payload, _PAYLOAD_TYPE), ec.ECDSA(algorithm))
    hint = hashlib.sha256(_public_pem(key)).hexdigest()
    value = {
        "mediaType": _MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": _PAYLOAD_TYPE,
            "signatures": [{"sig": base64.b64encode(signed).decode(), "keyid": ""}],
        },
    }
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def generate(folder: Path, name: str) -> tuple[str, Path, Path]:
    """Make a P-256 key for bundles: its hint, `name.key` for the owner alone, and `name.pub`.

    Raises:
        SettingsError: one of the files exists, or cannot be written.
    """
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    for path in (private, public):
        if path.exists():
            raise SettingsError(f"{path} exists; a key is never overwritten.", param="name")
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with disk_errors(folder, "no key was made"):
        folder.mkdir(parents=True, exist_ok=True)
        write_synced(private, pem, 0o600)
        write_synced(public, _public_pem(key), 0o644)
        sync_folder(folder)
    return hashlib.sha256(_public_pem(key)).hexdigest(), private, public


def _statement(folder: Path) -> dict[str, Any]:
    whole, resources = hashlib.sha256(), []
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in sorted(paths, key=lambda path: path.relative_to(folder).as_posix()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        whole.update(digest.digest())
        name = path.relative_to(folder).as_posix()
        resources.append({"name": name, "algorithm": "sha256", "digest": digest.hexdigest()})
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": folder.name, "digest": {"sha256": whole.hexdigest()}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {
            "resources": resources,
            "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False, "ignore_paths": []},
        },
    }


def _public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.", param="openssf") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name not in _HASHES:
        raise SettingsError(
            f"{path} is no private key on P-256, P-384 or P-521. Make one with: isthmus edge keygen NAME --openssf",
            param="openssf",
        )
    return key
