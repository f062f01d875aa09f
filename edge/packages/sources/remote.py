"""Brings all files of a package from a server: one GGUF file, the parts of a split one, or a folder with ONNX."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from edge.packages.formats.files import Files, opened_file
from edge.packages.formats.onnx_config import CONFIG_FILE
from edge.packages.formats.onnx_graph import read_graph
from edge.packages.formats.onnx_package import ENGINE_FILES, config_of
from edge.packages.gguf_split import joined, joined_bytes, part_name
from edge.packages.manifest import MODEL_FILE, WHOLE_FOLDER
from edge.packages.progress import ProgressListener
from edge.packages.sources.address import RemoteFile
from edge.packages.sources.local import LocalPackage, local_package
from edge.packages.sources.web import Fetched, WebFetcher, discard
from edge.packages.staging import Incoming, Readable
from shared.errors import InvalidRequest, NotFound, TrustError

Place = Callable[[str], Path]
"""Where a download from an address is kept while it is not whole."""


@dataclass(frozen=True, slots=True)
class FetchedPackage:
    """All files of a package, whole and here. `partials` are what holds them until they are installed."""

    local: LocalPackage
    partials: tuple[Path, ...]


def fetch_package(
    remote: RemoteFile, place: Place, fetcher: WebFetcher, limit_bytes: int, progress: ProgressListener
) -> FetchedPackage:
    """Bring everything that belongs to `remote`; `limit_bytes` is for all files together.

    Raises:
        NotFound: a file is not there.
        SourceUnavailable: one could not be read to its end; what arrived is kept for the next time.
        TrustError: a file is not what it has to be; nothing is kept.
        InvalidRequest: together they are larger than is allowed.
    """
    fetching = _Fetching(place, fetcher, limit_bytes, progress)
    try:
        if remote.file_name == CONFIG_FILE:
            return FetchedPackage(_onnx(remote, fetching), tuple(fetching.partials))
        if (named := part_name(remote.file_name)) is not None:
            return FetchedPackage(_parts(remote, named.all, fetching), tuple(fetching.partials))
        fetched = fetching.bring(remote)
        return FetchedPackage(local_package(fetched.path, fetched.sha256), tuple(fetching.partials))
    except TrustError:
        for partial in fetching.partials:
            discard(partial)
        raise


class _Fetching:
    """Files as they come; together they are bounded."""

    def __init__(self, place: Place, fetcher: WebFetcher, limit_bytes: int, progress: ProgressListener) -> None:
        self._place = place
        self._fetcher = fetcher
        self._limit_bytes = limit_bytes
        self._progress = progress
        self._total_bytes = 0
        self.partials: list[Path] = []

    def bring(self, remote: RemoteFile) -> Fetched:
        """One file, whole."""
        partial = self._place(remote.url)
        try:
            fetched = self._fetcher.fetch(remote, partial, self._progress)
        except NotFound:
            discard(partial)
            raise
        self.partials.append(partial)
        self._total_bytes += fetched.size_bytes
        if self._total_bytes > self._limit_bytes:
            raise InvalidRequest(
                f"The files have more than the {self._limit_bytes} bytes that edge.sources.limit allows.",
                param="source",
            )
        return fetched


def _parts(remote: RemoteFile, names: tuple[str, ...], fetching: _Fetching) -> LocalPackage:
    # What is pinned is the joined file.
    paths = [fetching.bring(replace(remote.sibling(name), sha256=None)).path for name in names]

    def opened() -> AbstractContextManager[Readable]:
        return joined(paths)

    return LocalPackage((Incoming(MODEL_FILE, joined_bytes(paths), opened, remote.sha256),), MODEL_FILE)


def _onnx(remote: RemoteFile, fetching: _Fetching) -> LocalPackage:
    """Configuration, the graph that it names, the weights that the graph names, and what the engine may read."""
    brought: dict[str, Fetched] = {}

    def bring(name: str) -> None:
        # What is pinned is the package as a whole.
        brought[name] = fetching.bring(replace(remote.sibling(name), sha256=None, magic=b""))

    bring(CONFIG_FILE)

    with _opened(brought) as files:
        graph = config_of(files).model.decoder.filename
    bring(graph)
    with _opened(brought) as files:
        data_files = read_graph(files, graph).data_files
    for name in sorted(data_files):
        bring(name)
    for name in sorted(ENGINE_FILES):
        try:
            bring(name)
        except NotFound:  # which of them a package has is its own choice; the check of the whole asks for the rest
            continue
    incoming = [Incoming(name, each.size_bytes, _opener(each.path), each.sha256) for name, each in brought.items()]
    return LocalPackage(tuple(incoming), WHOLE_FOLDER)


class _SoFar(Files):
    """Files of which some are still to come: they count as long enough until the whole is checked."""

    def size_bytes(self, name: str) -> int:
        """Size of `name`, or more than any graph asks for."""
        return super().size_bytes(name) if name in self else 1 << 62


@contextmanager
def _opened(brought: Mapping[str, Fetched]) -> Iterator[Files]:
    with ExitStack() as stack:
        descriptors = {}
        for name, each in brought.items():
            descriptors[name] = opened_file(each.path.parent, each.path.name)
            stack.callback(os.close, descriptors[name])
        yield _SoFar(descriptors)


def _opener(path: Path) -> Callable[[], AbstractContextManager[BinaryIO]]:
    return lambda: path.open("rb")
