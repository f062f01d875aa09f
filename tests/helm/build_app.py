"""Builds the applications of rendered Serve configs, as a Serve controller would: import path and arguments as given.

    python tests/helm/build_app.py APPLICATIONS.json

A process of its own, because building touches Ray, which here is one private node without its dashboard.
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


def build(applications: list[dict[str, Any]], folder: Path, ray_folder: str) -> subprocess.CompletedProcess[str]:
    """Build `applications` in a process of its own, whose files are below `folder`.

    `ray_folder` must have a short path: Ray keeps sockets in it.
    """
    given = folder / "applications.json"
    given.write_text(json.dumps(applications), "utf-8")
    private = {"HOME": str(folder), "RAY_TMPDIR": ray_folder, "HF_HUB_OFFLINE": "1", "ISTHMUS_HOME": str(folder)}
    ray = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    return subprocess.run(
        [sys.executable, str(Path(__file__)), str(given)],
        env={**os.environ, **private, **ray, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


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
