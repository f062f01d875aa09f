"""Holds predictions of the engine's speed and memory against the truth: `python -m loadtests.bench.prediction`."""

from __future__ import annotations

import argparse

from edge import plan_console, schedule_console
from edge.settings import EdgeSettings
from shared.settings import load


def main() -> None:
    """Print both tables, predicted over measured in each cell; exit with 1 where a cell is beyond its tolerance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="installed package; default: edge.model")
    parser.add_argument("--only", choices=("speed", "memory"), help="one table alone")
    arguments = parser.parse_args()
    settings = load(EdgeSettings, "edge", None)
    model = arguments.model or settings.model
    beyond = 0
    if arguments.only != "memory":
        beyond |= schedule_console.measure(settings, model, None, as_json=False)
    if arguments.only != "speed":
        beyond |= plan_console.measure(settings, model, as_json=False)
    raise SystemExit(beyond)


if __name__ == "__main__":
    main()
