"""Peak FLOP/s and bandwidth of this device: measured once by a process of its own, kept with the machine's identity."""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge.devices.probe import DeviceFacts
from shared.errors import SettingsError
from shared.settings import environment

_PROGRAM = Path(__file__).with_name("benchmark_process.py")
_LIMIT_S = 300.0
_REPETITIONS = 5
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Rates(_Kept):
    """Medians at one number of threads. Keys of `matmul` are matrix sizes, of the others bytes of an array."""

    matmul: dict[int, float] = Field(min_length=1)
    copy_: dict[int, float] = Field(min_length=1, alias="copy")
    triad: dict[int, float] = Field(min_length=1)

    @property
    def flops_per_s(self) -> float:
        """The best of the sizes: a ceiling."""
        return max(self.matmul.values())

    @property
    def bytes_per_s(self) -> float:
        """Of the largest arrays, which no cache holds on most machines: the better of copy and triad."""
        return max(self.copy_[max(self.copy_)], self.triad[max(self.triad)])


class Benchmark(_Kept):
    """What was measured, by number of threads, on the machine that `identity` names."""

    identity: str
    by_threads: dict[int, Rates] = Field(min_length=1)

    def at(self, threads: int) -> Rates:
        """The figures for `threads`, or for the nearest number below that was measured."""
        return self.by_threads[max((n for n in self.by_threads if n <= threads), default=min(self.by_threads))]


def machine_identity(device: DeviceFacts) -> str:
    """A name for what measurements depend on: processor, its features and caches, usable cores, total memory."""
    told = (
        device.machine,
        device.cpu_model,
        sorted(device.cpu_features),
        device.cores_usable,
        [(cache.level, cache.size_bytes) for cache in device.caches],
        device.memory_total_bytes >> 30,
    )
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def measure(device: DeviceFacts, *, repetitions: int = _REPETITIONS) -> Benchmark:
    """Run the micro-benchmark on one thread and on all usable cores; some seconds.

    Raises:
        SettingsError: numpy is missing, or the process did not answer.
    """
    threads = sorted({1, device.cores_usable})
    command = [sys.executable, "-P", str(_PROGRAM), str(repetitions), *map(str, threads)]
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter and a program of ours
            command,
            env={**environment(), **_ONE_THREAD},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
        answer = json.loads(done.stdout)
        return Benchmark(identity=machine_identity(device), by_threads=answer)
    except (OSError, subprocess.TimeoutExpired, ValueError, ValidationError):
        raise SettingsError(
            "The micro-benchmark did not finish; it needs numpy: pip install 'isthmus[edge]'.", param="bench"
        ) from None


def kept(folder: Path, device: DeviceFacts) -> Benchmark | None:
    """What was measured before on this very machine; None where there is nothing that can be used."""
    identity = machine_identity(device)
    try:
        found = Benchmark.model_validate_json((folder / _name(identity)).read_bytes())
    except (OSError, ValidationError):
        return None
    return found if found.identity == identity else None


def keep(folder: Path, benchmark: Benchmark) -> None:
    """Write it down for `kept`. Raises OSError where the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _name(benchmark.identity)
    write_whole(path, benchmark.model_dump_json(by_alias=True, indent=2).encode())


def write_whole(path: Path, content: bytes) -> None:
    """Replace the file at `path`, so that a reader finds the old content or the new, never a part."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _name(identity: str) -> str:
    return f"benchmark-{identity}.json"
