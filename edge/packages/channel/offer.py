"""What a channel offers, as signed TUF metadata in its folder: read, changed, signed and written by its publisher.

`timestamp.json` is written last: what stands before it is not the present offer until then. Version numbers only grow,
over what a killed publisher left too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from securesystemslib.exceptions import StorageError
from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, Targets, Timestamp

from edge.packages.channel import layout
from edge.packages.durable import replace_synced
from edge.packages.signing_key import SigningKey
from shared.errors import SettingsError

_OFFLINE = (Root.type, Targets.type)
_ONLINE = (Snapshot.type, Timestamp.type)
_RENEW_ROOT_WITHIN = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long each kind of metadata is valid. A device that is kept from newer metadata notices after `online`."""

    root: timedelta = timedelta(days=365)
    targets: timedelta = timedelta(days=180)
    online: timedelta = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class PublisherKeys:
    """`offline` vouches for root and releases; `online` for their being the latest. Without `offline`, only that."""

    online: SigningKey
    offline: SigningKey | None = None


class Offer:
    """The metadata of the channel in `folder`. Whoever changes it holds the channel's lock."""

    def __init__(self, folder: Path, keys: PublisherKeys, now: datetime, lifetimes: Lifetimes) -> None:
        self._folder = folder
        self._metadata = folder / layout.METADATA
        self._keys = keys
        self._now = now.replace(microsecond=0)
        self._lifetimes = lifetimes
        self._targets_changed = False
        if (self._metadata / "timestamp.json").exists():
            self._load()
        else:  # what a publisher left that was killed before the first offer was whole does not count
            self._begin()

    @property
    def targets(self) -> Targets:
        """What is offered."""
        return self._targets.signed

    @property
    def root_version(self) -> int:
        """Version of the root, one more with each rotation."""
        return self._root.signed.version

    def change_targets(self) -> Targets:
        """What is offered, to be changed.

        Raises:
            SettingsError: that takes the offline key.
        """
        self._offline()
        self._targets_changed = True
        return self._targets.signed

    def rotate(self, new: SigningKey) -> None:
        """Let `new` take the place of the offline key, and of the online one where they are the same.

        Raises:
            SettingsError: that takes the offline key.
        """
        old = self._offline()
        same = self._keys.online.key_id == old.key_id
        self._keys = PublisherKeys(online=new if same else self._keys.online, offline=new)
        self._assign(self._root.signed)
        self._next_root(old, new)
        self._targets_changed = True

    def write(self) -> datetime:
        """Sign and write all that has changed, and renew what only needs time; until when the offer is valid."""
        if self._keys.offline is not None:
            if self._root.signed.expires < self._now + _RENEW_ROOT_WITHIN:
                self._next_root(self._keys.offline)
            if self._targets.signed.expires < self._now + self._lifetimes.targets / 2:
                self._targets_changed = True
        number = max([*self._numbers("targets.json"), *self._numbers("snapshot.json")], default=0) + 1
        expires = self._now + self._lifetimes.online
        if self._targets_changed and self._keys.offline is not None:
            self._targets.signed.version = number
            self._targets.signed.expires = self._now + self._lifetimes.targets
            self._targets.sign(_signer(self._keys.offline))
        meta = {"targets.json": MetaFile(self._targets.signed.version)}
        snapshot = Metadata(Snapshot(version=number, expires=expires, meta=meta))
        timestamp = Metadata(
            Timestamp(
                version=number,
                expires=expires,
                snapshot_meta=MetaFile(number),
                unrecognized_fields={layout.PUBLISHED_AT: self._now.isoformat()},
            )
        )
        for each in (snapshot, timestamp):
            each.sign(_signer(self._keys.online))
        self._put(f"{self.root_version}.root.json", self._root.to_bytes())
        self._put(f"{self._targets.signed.version}.targets.json", self._targets.to_bytes())
        self._put(f"{number}.snapshot.json", snapshot.to_bytes())
        self._put("timestamp.json", timestamp.to_bytes())
        return expires

    def _begin(self) -> None:
        offline = self._offline()
        self._root = Metadata(Root(expires=self._now + self._lifetimes.root, consistent_snapshot=True))
        self._assign(self._root.signed)
        self._root.sign(_signer(offline))
        self._targets = Metadata(Targets(expires=self._now))

    def _load(self) -> None:
        """Read the present offer and check that it and the keys belong together."""
        newest = max(self._numbers("root.json"), default=0)
        try:
            self._root = Metadata[Root].from_file(str(self._metadata / f"{newest}.root.json"))
            try:
                self._targets = self._targets_under(self._root.signed)
            except (
                RepositoryError
            ):  # a rotation that was killed after its root: the offer is still that of the one before
                before = Metadata[Root].from_file(str(self._metadata / f"{newest - 1}.root.json"))
                self._targets = self._targets_under(before.signed)
                self._targets_changed = True
        except (RepositoryError, StorageError, KeyError):
            raise SettingsError(f"{self._folder} is no channel that is whole and signed.", param="channel") from None
        self._require_own(_ONLINE, self._keys.online)
        if self._keys.offline is not None:
            self._require_own(_OFFLINE, self._keys.offline)

    def _targets_under(self, root: Root) -> Metadata[Targets]:
        """The present targets, from the timestamp down, each checked with the keys in `root`."""
        timestamp = Metadata[Timestamp].from_file(str(self._metadata / "timestamp.json"))
        root.verify_delegate(Timestamp.type, timestamp.signed_bytes, timestamp.signatures)
        number = timestamp.signed.snapshot_meta.version
        snapshot = Metadata[Snapshot].from_file(str(self._metadata / f"{number}.snapshot.json"))
        root.verify_delegate(Snapshot.type, snapshot.signed_bytes, snapshot.signatures)
        number = snapshot.signed.meta["targets.json"].version
        targets = Metadata[Targets].from_file(str(self._metadata / f"{number}.targets.json"))
        root.verify_delegate(Targets.type, targets.signed_bytes, targets.signatures)
        return targets

    def _require_own(self, roles: tuple[str, ...], key: SigningKey) -> None:
        for role in roles:
            if _signer(key).public_key.keyid not in self._root.signed.roles[role].keyids:
                raise SettingsError(f"That key is not the one of this channel for its {role}.", param="key")

    def _offline(self) -> SigningKey:
        if self._keys.offline is None:
            raise SettingsError("This changes what is offered, which takes the channel's own key (--key).", param="key")
        return self._keys.offline

    def _assign(self, root: Root) -> None:
        for roles, key in ((_OFFLINE, self._offline()), (_ONLINE, self._keys.online)):
            public = _signer(key).public_key
            for role in roles:
                for old in [each for each in root.roles[role].keyids if each != public.keyid]:
                    root.revoke_key(old, role)
                root.add_key(public, role)

    def _next_root(self, *signers: SigningKey) -> None:
        self._root.signed.version += 1
        self._root.signed.expires = self._now + self._lifetimes.root
        self._root.signatures.clear()
        for key in signers:
            self._root.sign(_signer(key), append=True)

    def _numbers(self, role: str) -> list[int]:
        paths = self._metadata.glob(f"[0-9]*.{role}")
        return [int(number) for path in paths if (number := path.name.partition(".")[0]).isdecimal()]

    def _put(self, name: str, raw: bytes) -> None:
        replace_synced(self._metadata / name, raw, scratch=self._folder, mode=0o644)


def _signer(key: SigningKey) -> CryptoSigner:
    return CryptoSigner(key.private)
