"""Keeps one core busy until standard input ends: the neighbour beside which an engine is measured."""

from __future__ import annotations

import os
import sys
import threading


def main() -> None:
    """Count for nothing. The parent's end closes the pipe, which ends this process as well."""
    threading.Thread(target=_until_the_end, daemon=True).start()
    while True:
        pass


def _until_the_end() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
