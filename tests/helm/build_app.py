"""Builds the applications of rendered Serve configs, as a Serve controller would: import path and arguments as given.

    python tests/helm/build_app.py APPLICATIONS.json

A process of its own, because building touches Ray, which here is one private node without its dashboard. It takes
seconds of imports, so `Building` starts it beside the other tests and the one that needs it waits for its end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

LIMIT_S = 500.0


class Building:
    """The process, started when this is made."""

    def __init__(self, applications: list[dict[str, Any]], folder: Path, ray_folder: str) -> None:
        """`ray_folder` must have a short path: Ray keeps sockets in it."""
        given = folder / "applications.json"
        given.write_text(json.dumps(applications), "utf-8")
        private = {"HOME": str(folder), "RAY_TMPDIR": ray_folder, "HF_HUB_OFFLINE": "1", "ISTHMUS_HOME": str(folder)}
        ray = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        self._log = folder / "build.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__)), str(given)],
                env={**os.environ, **private, **ray, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def outcome(self) -> tuple[int, str, str]:
        """Exit code, what was printed, and the log, once the process has ended."""
        said, _ = self._process.communicate(timeout=LIMIT_S)
        return self._process.returncode, said, self._log.read_text("utf-8", "replace")

    def end(self) -> None:
        """End the process if nobody waited for it."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.communicate(timeout=60)


def main(specification: str) -> int:
    """Print what was built of each application; any refusal ends with its traceback."""
    import ray

    ray.init(num_cpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        for application in json.loads(Path(specification).read_text("utf-8")):
            module, _, name = application["import_path"].partition(":")
            built = getattr(import_module(module), name)(application["args"])
            print(application["name"], type(built).__name__)
    finally:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
