"""Follows a release channel: which root is believed, what is the latest release, and how its files are had.

Rollback, freeze, expiry, thresholds and rotation are python-tuf's. Ours are two things: the first root is believed
because trusted keys have signed it (where the policy asks for signatures), and expiry is judged on trusted time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from tuf.api import exceptions
from tuf.api.metadata import Key, Metadata, Root, TargetFile, Targets
from tuf.ngclient import Updater

from edge.packages.channel import layout
from edge.packages.channel.transport import Transport
from edge.packages.channel.trusted_time import TrustedTime
from edge.packages.durable import disk_errors, replace_synced, sync_tree
from edge.packages.installation import Published
from edge.packages.manifest import (
    MANIFEST_FILE,
    MANIFEST_LIMIT_BYTES,
    SIGNATURE_FILE,
    PackageFile,
    parse_manifest,
)
from edge.packages.signing_key import key_id_of
from edge.packages.staging import Readable
from edge.packages.trust import Trust, TrustedKey
from shared.errors import ChannelRejected, NotFound, SourceUnavailable, UntrustedKey

_ROOT_LIMIT_BYTES = 512_000
_ROOTS_LIMIT = 256
_SIGNATURE_LIMIT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Successor:
    """A key that vouches for releases of a channel in the place of one that is trusted."""

    public: Ed25519PublicKey
    predecessor: TrustedKey


class Channel:
    """One channel as this device knows it. `state` keeps the metadata seen, one folder a channel."""

    def __init__(self, base_url: str, state: Path, trust: Trust, time: TrustedTime, transport: Transport) -> None:
        self._base_url = base_url
        self._folder = state / hashlib.sha256(base_url.encode()).hexdigest()[:16]
        self._trust = trust
        self._time = time
        self._transport = transport
        self._successors: tuple[Successor, ...] = ()

    @property
    def successors(self) -> tuple[Successor, ...]:
        """After `latest`: keys that the channel's root has put in the place of a trusted one, and are not trusted yet.

        Only where trusted keys have signed the root from which this device began: the chain from there is theirs.
        """
        return self._successors

    def latest(self, name: str) -> Published:
        """The latest release of `name`, for `Installation.install_published`.

        Raises:
            NotFound: the channel has no package of that name.
            ChannelRejected: metadata is expired, older than what was seen, tampered with or wrongly signed.
            UntrustedKey: this channel was never followed, and no trusted key signed its root.
            SourceUnavailable: it does not answer.
        """
        with disk_errors(self._folder), _refusals(self._base_url):
            updater = self._refreshed()
            pointer = updater.get_targetinfo(layout.release_path(name))
            if pointer is None:
                raise NotFound(f"The channel {self._base_url} has no package of that name.", param="source")
            release = layout.parse_release(self._bytes(pointer, 1 << 16), name)
            manifest = self._bytes(self._target(updater, name, release.sequence, MANIFEST_FILE), MANIFEST_LIMIT_BYTES)
            if parse_manifest(manifest).sequence != release.sequence:
                raise ChannelRejected(f"{name}: the manifest is that of another release.", param="sequence")
            signed = updater.get_targetinfo(layout.file_path(name, release.sequence, SIGNATURE_FILE))
            signatures = self._bytes(signed, _SIGNATURE_LIMIT_BYTES) if signed is not None else None

        @contextmanager
        def opened(file: PackageFile) -> Iterator[Readable]:
            with _refusals(self._base_url):
                target = self._target(updater, name, release.sequence, file.path)
                if target.length != file.size_bytes or target.hashes.get("sha256") != file.sha256:
                    raise ChannelRejected(f"{name}: {file.path} is not the file of its manifest.", param=file.path)
                yield _Chunks(self._transport.fetch(self._url_of(target)))

        return Published(manifest, signatures, opened)

    def _refreshed(self) -> Updater:
        pinned = self._folder / "bootstrap.json"
        known = self._folder / "tuf"
        if not pinned.exists():
            root = self._first_root()
            known.mkdir(parents=True, exist_ok=True)
            replace_synced(pinned, root, mode=0o644)
        updater = Updater(
            str(known), f"{self._base_url}/{layout.METADATA}/", fetcher=self._transport, bootstrap=pinned.read_bytes()
        )
        metadata = updater._trusted_set
        metadata.reference_time = self._time.now()
        updater.refresh()
        sync_tree(known)
        self._successors = self._successors_of(metadata.root, pinned.read_bytes())
        stated = layout.published_at(metadata.timestamp.unrecognized_fields)
        self._time.raise_to(stated or self._time.now())
        return updater

    def _first_root(self) -> bytes:
        """The newest root that trusted keys have signed; without a policy that asks for it, the very first."""
        believed: bytes | None = None
        for version in range(1, _ROOTS_LIMIT + 1):
            try:
                url = f"{self._base_url}/{layout.METADATA}/{version}.root.json"
                raw = self._transport.download_bytes(url, _ROOT_LIMIT_BYTES)
            except exceptions.DownloadHTTPError as error:
                if version == 1 or error.status_code not in (403, 404):
                    raise
                break
            if self._trust.policy != "require":
                return raw
            if self._is_believed(raw):
                believed = raw
        if believed is None:
            raise UntrustedKey(
                f"No key that is trusted here has signed the root of {self._base_url}. "
                "Add the publisher's: isthmus edge trust add FILE",
                param="channel",
            )
        return believed

    def _is_believed(self, raw: bytes) -> bool:
        """Whether as many trusted keys as the root's own threshold asks for have signed it."""
        return bool(self._believed_by(raw))

    def _believed_by(self, raw: bytes) -> tuple[TrustedKey, ...]:
        """The trusted keys that have signed the root, if they are as many as its own threshold asks for."""
        root = Metadata[Root].from_bytes(raw)
        signed = root.signed.get_verification_result(Root.type, root.signed_bytes, root.signatures).signed
        ids = {key_id_of(public) for public in _ed25519(signed.values())}
        signers = tuple(key for key_id, key in self._trust.keys.items() if key_id in ids)
        return signers if len(signers) >= root.signed.roles[Root.type].threshold else ()

    def _successors_of(self, root: Root, first: bytes) -> tuple[Successor, ...]:
        signers = self._believed_by(first)
        if not signers or self._trust.policy == "off":
            return ()
        releasing = _ed25519(root.keys[key_id] for key_id in root.roles[Targets.type].keyids)
        return tuple(Successor(public, signers[0]) for public in releasing if key_id_of(public) not in self._trust.keys)

    def _target(self, updater: Updater, name: str, sequence: int, path: str) -> TargetFile:
        target = updater.get_targetinfo(layout.file_path(name, sequence, path))
        if target is None:
            raise ChannelRejected(f"{name}: the channel does not vouch for {path}.", param=path)
        return target

    def _bytes(self, target: TargetFile, limit_bytes: int) -> bytes:
        if target.length > limit_bytes:
            raise ChannelRejected(f"{target.path} is larger than {limit_bytes} bytes.", param="channel")
        raw = self._transport.download_bytes(self._url_of(target), target.length)
        target.verify_length_and_hashes(raw)
        return raw

    def _url_of(self, target: TargetFile) -> str:
        return f"{self._base_url}/{layout.TARGETS}/{layout.served_path(target.path, target.hashes['sha256'])}"


def _ed25519(keys: Iterable[Key]) -> list[Ed25519PublicKey]:
    """Those of `keys` that could sign a package."""
    return [
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.keyval["public"]))
        for key in keys
        if key.keytype == "ed25519"
    ]


class _Chunks:
    """A stream of chunks, read in other sizes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""
        if not self._rest:
            self._rest = next(self._chunks, b"")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


@contextmanager
def _refusals(base_url: str) -> Iterator[None]:
    """Say in our words why python-tuf refused."""
    try:
        yield
    except exceptions.ExpiredMetadataError:
        raise ChannelRejected(
            f"The channel {base_url} is out of date: what it offers has expired.",
            param="channel",
            code="channel_expired",
        ) from None
    except exceptions.BadVersionNumberError:
        raise ChannelRejected(
            f"The channel {base_url} offers older metadata than was seen before.",
            param="channel",
            code="channel_rollback",
        ) from None
    except exceptions.UnsignedMetadataError:
        raise ChannelRejected(
            f"The channel {base_url} is not signed by its keys.", param="channel", code="channel_unsigned"
        ) from None
    except (exceptions.RepositoryError, exceptions.DownloadLengthMismatchError):
        raise ChannelRejected(
            f"The channel {base_url} offers bytes that its metadata does not vouch for.",
            param="channel",
            code="channel_tampered",
        ) from None
    except exceptions.DownloadError as error:
        status = f" with status {error.status_code}" if isinstance(error, exceptions.DownloadHTTPError) else ""
        raise SourceUnavailable(f"The channel {base_url} does not answer{status}.", param="source") from None
