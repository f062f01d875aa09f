"""Ed25519 keys of publishers: made, kept in PEM files, and named by the hash of their public half."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from edge.packages.durable import disk_errors, sync_folder, write_synced
from shared.errors import SettingsError

_FILE_LIMIT_BYTES = 16 << 10


class SigningKey:
    """A private key. It is never printed, logged or echoed."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def generate(cls) -> SigningKey:
        """A new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """The key in the PEM file `path` (PKCS 8, not encrypted).

        Raises:
            SettingsError: it cannot be read, is open to others, or is no Ed25519 private key.
        """
        raw = _bytes_of(path)
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"{path} can be read by others. Run: chmod 600 {path}", param="key")
        try:
            private = serialization.load_pem_private_key(raw, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise SettingsError(f"{path} is no Ed25519 private key in PEM form.", param="key")
        return cls(private)

    @property
    def public(self) -> Ed25519PublicKey:
        """The public half."""
        return self._private.public_key()

    @property
    def private(self) -> Ed25519PrivateKey:
        """The key itself, for libraries that sign on their own."""
        return self._private

    @property
    def key_id(self) -> str:
        """The name of the key."""
        return key_id_of(self.public)

    def sign(self, data: bytes) -> bytes:
        """The 64 bytes of the signature."""
        return self._private.sign(data)

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Create `name.key` (for the owner alone) and `name.pub` in `folder`; both paths.

        Raises:
            SettingsError: one of them exists, or cannot be written.
        """
        private, public = folder / f"{name}.key", folder / f"{name}.pub"
        for path in (private, public):
            if path.exists():
                raise SettingsError(f"{path} exists; a key is never overwritten.", param="name")
        with disk_errors(folder, "no key was made"):
            folder.mkdir(parents=True, exist_ok=True)
            pem = self._private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            write_synced(private, pem, 0o600)
            write_synced(public, public_pem(self.public), 0o644)
            sync_folder(folder)
        return private, public


def key_id_of(public: Ed25519PublicKey) -> str:
    """The name of a key: the sha256 of its public half as SubjectPublicKeyInfo."""
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def public_pem(public: Ed25519PublicKey) -> bytes:
    """The public half as a PEM file holds it."""
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def read_public(path: Path) -> Ed25519PublicKey:
    """The public key in the PEM file `path`.

    Raises:
        SettingsError: it cannot be read, or is no Ed25519 public key.
    """
    try:
        public = serialization.load_pem_public_key(_bytes_of(path))
    except (ValueError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, Ed25519PublicKey):
        raise SettingsError(f"{path} is no Ed25519 public key in PEM form.", param="key")
    return public


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_LIMIT_BYTES)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {error.strerror or os.strerror(error.errno or 0)}.", param="key"
        ) from None
