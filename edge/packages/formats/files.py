"""The files of a package, opened once: what is judged, hashed and handed to an engine is the same open file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from shared.errors import ModelCorrupt

FILES_LIMIT = 512
_NATIVE_MAGIC = (b"\x7fELF", b"MZ", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe",
                 b"\xca\xfe\xba\xbe")  # fmt: skip
_NATIVE_SUFFIXES = (".so", ".dll", ".dylib", ".exe", ".o", ".a")


class Files:
    """Open files by their path in the package, `/` between folders. They are closed by whoever opened them."""

    def __init__(self, descriptors: Mapping[str, int]) -> None:
        self._descriptors = dict(descriptors)

    @property
    def names(self) -> tuple[str, ...]:
        """All paths, sorted."""
        return tuple(sorted(self._descriptors))

    def only(self, names: Iterable[str]) -> Files:
        """Some of the files, under the same descriptors."""
        return Files({name: self._descriptors[name] for name in names})

    def __contains__(self, name: str) -> bool:
        return name in self._descriptors

    def descriptor(self, name: str) -> int:
        """The open file `name`.

        Raises:
            ModelCorrupt: the package has no such file.
        """
        found = self._descriptors.get(name)
        if found is None:
            raise ModelCorrupt(f"{name} is missing from the package.", param=name)
        return found

    def size_bytes(self, name: str) -> int:
        """Size of `name`; raises as `descriptor`."""
        return os.fstat(self.descriptor(name)).st_size

    def read(self, name: str, limit_bytes: int) -> bytes:
        """All of `name`.

        Raises:
            ModelCorrupt: it is missing, or longer than `limit_bytes`.
        """
        descriptor, size = self.descriptor(name), self.size_bytes(name)
        if size > limit_bytes:
            raise ModelCorrupt(f"{name} has {size} bytes; at most {limit_bytes} are read.", param=name)
        return os.pread(descriptor, size, 0)

    def head(self, name: str, size_bytes: int = 64) -> bytes:
        """The first bytes of `name`."""
        return self.range(name, 0, size_bytes)

    def range(self, name: str, offset: int, size_bytes: int) -> bytes:
        """Bytes of `name` from `offset`, fewer at its end."""
        return os.pread(self.descriptor(name), size_bytes, offset)


def opened_file(folder: Path, path: str) -> int:
    """Open the regular file `path` below `folder` for reading; a link in its place is not followed.

    Raises:
        ModelCorrupt: it is missing, is no regular file, or cannot be opened.
    """
    try:
        descriptor = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ModelCorrupt(f"{folder.name}/{path} cannot be opened: {error.strerror}.", param=path) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ModelCorrupt(f"{folder.name}/{path} is no regular file.", param=path)
    return descriptor


@contextmanager
def opened_files(folder: Path, paths: Iterable[str]) -> Iterator[Files]:
    """The files `paths` below `folder`, open for the block; raises as `opened_file`."""
    with ExitStack() as stack:
        descriptors = {}
        for path in paths:
            descriptors[path] = descriptor = opened_file(folder, path)
            stack.callback(os.close, descriptor)
        yield Files(descriptors)


@contextmanager
def opened_candidate(path: Path) -> Iterator[Files]:
    """The one file `path`, or every file below the folder `path`, open for the block.

    Raises:
        ModelCorrupt: it holds links or other things that are no files, or too many of them.
    """
    if not path.is_dir():
        with opened_files(path.parent, [path.name]) as files:
            yield files
        return
    with opened_files(path, _paths_below(path)) as files:
        yield files


def _paths_below(folder: Path) -> list[str]:
    paths: list[str] = []
    for parent, _, names in os.walk(folder):
        paths.extend(str((Path(parent) / name).relative_to(folder)) for name in names)
        if len(paths) > FILES_LIMIT:
            raise ModelCorrupt(f"The folder holds more than {FILES_LIMIT} files.", param="files")
    return sorted(paths)


def refuse_native_code(files: Files) -> None:
    """Refuse packages that bring machine code: loading one must never run what it brings.

    Raises:
        ModelCorrupt: a file is a program or library, by its name or by its first bytes.
    """
    for name in files.names:
        if (
            name.lower().endswith(_NATIVE_SUFFIXES)
            or ".so." in name.lower()
            or files.head(name).startswith(_NATIVE_MAGIC)
        ):
            raise ModelCorrupt(f"{name} is native code, which a package may not bring.", param=name)
