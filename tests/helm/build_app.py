"""Builds the application of a rendered Serve config, as a replica controller would: import path and arguments as given.

    python tests/helm/build_app.py ARGUMENTS.json

A process of its own, because building touches Ray, which here is one private node without its dashboard.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path


def main(specification: str) -> int:
    """Print the deployment that answers requests; any refusal ends with its traceback."""
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
