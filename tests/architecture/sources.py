"""The source tree as the architecture tests read it: files that belong to the project, parsed."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "edge", "router", "cloud", "loadtests")


@cache
def modules() -> tuple[Path, ...]:
    """Python files of the packages, relative to the root."""
    return tuple(
        sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py") if "__pycache__" not in path.parts)
    )


@cache
def tracked() -> tuple[Path, ...]:
    """Files under version control; every file of the tree where there is none (a source archive)."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return tuple(ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file())
    skipped = {".venv", ".venv-test", ".git", "dist", "build", "__pycache__"}
    return tuple(p for p in ROOT.rglob("*") if p.is_file() and not skipped & set(p.relative_to(ROOT).parts))


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def named(path: Path) -> str:
    """The path as a test id."""
    return str(path.relative_to(ROOT))
