"""The documentation builds strictly, and no page of it asks another host for anything."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

_LOADED = re.compile(r"<(?:script|link|img|iframe|source)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]+\"")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; skipped where MkDocs is not installed (`make docs` installs it)."""
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("MkDocs is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=110,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_is_built_with_every_part(site: Path) -> None:
    index = (site / "index.html").read_text()
    for page in ("tutorial/first-answer", "howto/deploy-the-chart", "reference/metrics", "explanation/scoring"):
        assert (site / f"{page}.html").exists()
        assert f'href="{page}.html"' in index
    for folder in ("runbooks", "adr"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert f'href="{folder}/{page.stem}.html"' in index


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    assert [(path.name, found) for path in pages for found in _LOADED.findall(path.read_text())] == []


def test_every_command_of_the_reference_is_there(site: Path) -> None:
    text = (site / "reference" / "commands.html").read_text()
    wanted = ("up", "edge pull", "router audit verify", "fleet status", "chat")
    assert [words for words in wanted if f"isthmus {words}" not in text] == []
