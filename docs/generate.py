"""Makes the pages of `docs/reference` from the code: settings, commands, HTTP routes, metrics, errors and exit codes.

`python docs/generate.py` writes them; `--check` only compares, and fails where a page is not as it would be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from generator import commands, errors, metrics, routes, settings

DOCS = Path(__file__).parent
PAGES = {
    **settings.PAGES,
    "commands.md": commands.page,
    **routes.PAGES,
    "metrics.md": metrics.page,
    "errors.md": errors.page,
}


def main() -> int:
    """Write the pages, or say which of them are out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page would change")
    check = parser.parse_args().check
    folder = DOCS / "reference"
    stale = False
    for name, make in PAGES.items():
        path, text = folder / name, make()
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale = True
        if check:
            sys.stderr.write(f"docs/reference/{name} is out of date: run PYTHONPATH=. python docs/generate.py\n")
        else:
            folder.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
