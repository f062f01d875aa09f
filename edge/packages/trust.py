"""Decides who may vouch for a package on this device: the trusted keys, and what a missing signature means."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from edge.packages import signature
from edge.packages.durable import disk_errors, replace_synced, sync_folder
from edge.packages.signing_key import key_id_of, public_pem, read_public
from shared.errors import NotFound, SettingsError, TrustError, Unsigned, UntrustedKey

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_LIMIT = 64
_ID_DIGITS = 8
_SUFFIX = ".pub"


TrustPolicy = Literal["require", "warn", "off"]
"""What happens to a package that no trusted key has signed."""


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key and what its owner is called here."""

    name: str
    key_id: str
    public: Ed25519PublicKey = field(compare=False)


def _silent(problem: TrustError) -> None:
    del problem


@dataclass(frozen=True, slots=True)
class Trust:
    """Keys and policy as they stand now. `warn` is told of what passes under the policy `warn`."""

    policy: TrustPolicy
    keys: Mapping[str, TrustedKey]
    warn: Callable[[TrustError], None] = _silent

    def judge(self, name: str, manifest: bytes, signatures: bytes | None) -> TrustedKey | None:
        """Who vouches for `manifest`; None where the policy lets it pass without.

        Raises:
            SignatureInvalid: a trusted key's signature is not over these bytes, whatever the policy but `off`.
            Unsigned: there is no signature, and the policy asks for one.
            UntrustedKey: no trusted key has signed, and the policy asks for one.
        """
        if self.policy == "off":
            return self._signer_if_any(manifest, signatures)
        if signatures is None:
            self._object(_unsigned(name))
            return None
        found = signature.parse(signatures).signatures
        signer = None
        for each in found:
            if (key := self.keys.get(each.key_id)) is not None:
                signature.check(manifest, each, key.public)
                signer = signer or key
        if signer is None:
            self._object(_untrusted(name, [each.key_id for each in found]))
        return signer

    def judge_signer(self, name: str, key_id: str | None) -> None:
        """What `judge` would say of a manifest that only `key_id` (None: nobody) will have signed; raises as it."""
        if self.policy != "require" or key_id in self.keys:
            return
        raise _unsigned(name) if key_id is None else _untrusted(name, [key_id])

    def _signer_if_any(self, manifest: bytes, signatures: bytes | None) -> TrustedKey | None:
        try:
            return replace_policy(self, "require").judge("", manifest, signatures)
        except TrustError:
            return None

    def _object(self, problem: TrustError) -> None:
        if self.policy == "require":
            raise problem
        self.warn(problem)


def with_key(trust: Trust, key: TrustedKey) -> Trust:
    """The same policy with one more key."""
    return Trust(trust.policy, {**trust.keys, key.key_id: key}, trust.warn)


def replace_policy(trust: Trust, policy: TrustPolicy) -> Trust:
    """The same keys under another policy."""
    return Trust(policy, trust.keys, trust.warn)


NO_TRUST = Trust("off", {})
"""Nobody is trusted and nobody asked: a device before its owner has trusted a key."""


class TrustedKeys:
    """The folder of trusted keys: one PEM file each, named by its owner."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> tuple[TrustedKey, ...]:
        """Every trusted key, by name.

        Raises:
            SettingsError: the folder or a key in it cannot be read: trust is never less than what was asked for.
        """
        try:
            paths = sorted(path for path in self._folder.iterdir() if path.suffix == _SUFFIX)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise SettingsError(f"{self._folder} cannot be read: {error.strerror}.", param="trust") from None
        return tuple(_key(path.stem, read_public(path)) for path in paths)

    def trust(self, policy: TrustPolicy | None, warn: Callable[[TrustError], None] = _silent) -> Trust:
        """Keys and policy; without one: `require` once any key is trusted, else `off`."""
        keys = {key.key_id: key for key in self.all()}
        return Trust(policy or ("require" if keys else "off"), keys, warn)

    def add(self, path: Path, name: str | None = None) -> TrustedKey:
        """Trust the public key in the PEM file `path` under `name` (default: the file's).

        Raises:
            SettingsError: no such key, an unfit name, or one that another key has.
        """
        return self._add(_key(name or path.stem, read_public(path)))

    def succeed(self, predecessor: TrustedKey, public: Ed25519PublicKey) -> TrustedKey:
        """Trust `public` beside the key that has handed over to it, under a name made of that key's and its own id.

        Raises:
            SettingsError: it cannot be written.
        """
        key_id = key_id_of(public)
        name = f"{predecessor.name[: _NAME_LIMIT - _ID_DIGITS - 1]}-{key_id[:_ID_DIGITS]}"
        return self._add(_key(name, public))

    def _add(self, key: TrustedKey) -> TrustedKey:
        check_key_name(key.name)
        for known in self.all():
            if known.key_id == key.key_id and known.name == key.name:
                return key
            if known.key_id == key.key_id or known.name == key.name:
                raise SettingsError(f"{known.name} ({known.key_id[:16]}) is trusted already.", param="name")
        with disk_errors(self._folder, "nothing was changed"):
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_synced(self._folder / f"{key.name}{_SUFFIX}", public_pem(key.public), mode=0o644)
        return key

    def remove(self, name: str) -> TrustedKey:
        """Trust the key called `name`, or with the id `name`, no longer.

        Raises:
            NotFound: there is no such key.
        """
        for key in self.all():
            if name in (key.name, key.key_id):
                with disk_errors(self._folder, "nothing was changed"):
                    (self._folder / f"{key.name}{_SUFFIX}").unlink()
                    sync_folder(self._folder)
                return key
        raise NotFound("No trusted key has that name or id.", param="name")


def check_key_name(name: str) -> None:
    """Refuse what would not do as the name of a file.

    Raises:
        SettingsError: it is no name of a key.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError("A key's name is made of letters, digits and ._- (at most 64).", param="name")


def _key(name: str, public: Ed25519PublicKey) -> TrustedKey:
    return TrustedKey(name, key_id_of(public), public)


def _unsigned(name: str) -> TrustError:
    return Unsigned(
        f"{name} is not signed, and this device asks for a signature by a trusted key (edge.trust.policy).",
        param="signature",
    )


def _untrusted(name: str, key_ids: list[str]) -> TrustError:
    shown = ", ".join(key_id[:16] for key_id in key_ids)
    return UntrustedKey(f"{name} is signed by {shown}; none of these keys is trusted here.", param="signature")
