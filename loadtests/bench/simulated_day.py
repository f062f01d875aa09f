"""How long a simulated day of a fleet takes, and how much memory: `python -m loadtests.bench.simulated_day`.

    python -m loadtests.bench.simulated_day [--devices 100000] [--limit-s 300] [--limit-gib 6]

The bounds are those that the simulator promises for 100,000 devices on two cores; the ratios are to them, and below 1
where they hold. Memory is the sum of what the command and its processes have for themselves (PSS), at its highest.
"""

from __future__ import annotations

import subprocess
import sys
import time

import orjson
import psutil
import typer

_LOOK_S = 0.5


def measure(devices: int) -> tuple[float, float]:
    """Seconds that the command took, and GiB at its highest."""
    command = [sys.executable, "-m", "shared.cli", "loadtest", "simulate", "--devices", str(devices), "--day", "--json"]
    began_s, most_bytes = time.monotonic(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - ours
    try:
        while process.poll() is None:
            most_bytes = max(most_bytes, _pss_bytes(process.pid))
            time.sleep(_LOOK_S)
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise SystemExit(f"error: the simulation ended with code {process.returncode}")
    return time.monotonic() - began_s, most_bytes / 1024**3


def _pss_bytes(pid: int) -> int:
    total = 0
    try:
        root = psutil.Process(pid)
        for each in (root, *root.children(recursive=True)):
            total += each.memory_full_info().pss
    except psutil.Error:
        return total
    return total


def main(devices: int = 100_000, limit_s: float = 300.0, limit_gib: float = 6.0) -> None:
    """Print time, memory, and both against their bounds."""
    took_s, most_gib = measure(devices)
    result = {
        "devices": devices,
        "policies": 4,
        "took_s": round(took_s, 1),
        "most_gib": round(most_gib, 2),
        "took_to_limit": round(took_s / limit_s, 3),
        "memory_to_limit": round(most_gib / limit_gib, 3),
    }
    print(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())
    if took_s > limit_s or most_gib > limit_gib:
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
