"""Runs every block of tutorial and how-tos as it stands on the page, against the real command, router and engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from shared.testing.models import write_gguf
from tests.architecture.sources import ROOT
from tests.docs.blocks import LANGUAGES, REASONS, STACK, Block, blocks_of, matches
from tests.docs.conftest import EDGE, ROUTER, Place, Shells
from tests.helm.tools import HELM4, ToolsUnavailable, provide

DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix() for name in ("tutorial", "howto") for path in (DOCS / name).glob("*.md")
)
APART = {"howto/deploy-the-chart.md", "howto/sign-and-roll-out-a-model.md", "howto/write-and-test-a-policy.md"}
"""Pages that start what they need themselves; the others find a running stack."""
SLOW = {
    "howto/add-an-adapter.md",
    "howto/enrol-a-raspberry-pi.md",
    "howto/recover-from-failures.md",
    "howto/run-a-load-test.md",
    "howto/sign-and-roll-out-a-model.md",
    "howto/write-and-test-a-policy.md",
}
"""Pages whose blocks take too long for the suite."""
SKIPPED_AT_MOST = 8
"""Blocks of all pages together that need what a test has not."""


def _adapter(folder: Path) -> None:
    from tests.edge.adapter_files import write_adapter

    write_adapter(folder / "tone.gguf")


def _model(folder: Path) -> None:
    write_gguf(folder / "my-model.gguf")


def _helm(folder: Path) -> None:
    try:
        (folder / ".venv" / "bin" / "helm").symlink_to(provide(HELM4) / "helm")
    except ToolsUnavailable as error:
        pytest.skip(str(error))


BROUGHT: dict[str, Callable[[Path], None]] = {
    "howto/add-an-adapter.md": _adapter,
    "howto/sign-and-roll-out-a-model.md": _model,
    "howto/deploy-the-chart.md": _helm,
}
"""What a page's reader has already."""


def _all_blocks() -> list[tuple[str, Block]]:
    return [(page, block) for page in PAGES for block in blocks_of(DOCS / page)]


def _marked(page: str) -> object:
    marks = [pytest.mark.slow] if page in SLOW else []
    return pytest.param(page, marks=[*marks, pytest.mark.timeout(600)])


@pytest.mark.engine
@pytest.mark.pages
@pytest.mark.parametrize("page", [_marked(page) for page in PAGES])
def test_a_page_does_what_it_says(page: str, request: pytest.FixtureRequest, clone: Path, tmp_path: Path) -> None:
    place: Place = request.getfixturevalue("apart" if page in APART else "running")
    BROUGHT.get(page, lambda _: None)(clone)
    reader = Reader(place, clone, Shells(clone, place, tmp_path / "device"))
    try:
        for block in blocks_of(DOCS / page):
            if not block.skipped:
                reader.follow(block)
    finally:
        reader.shells.end()
    assert not reader.faults, "\n\n".join(reader.faults)


class Reader:
    """Does what the blocks of one page say, and keeps what came out otherwise."""

    def __init__(self, place: Place, folder: Path, shells: Shells) -> None:
        self.shells = shells
        self.faults: list[str] = []
        self._place = place
        self._folder = folder
        self._printed = ""

    def follow(self, block: Block) -> None:
        """Write a file, run a program or commands, or compare what was printed last."""
        text = self._placed("\n".join(block.lines) + "\n")
        if block.language == "yaml":
            yaml.safe_load(text)
            (self._folder / block.title).write_text(text)
        elif block.language == "python":
            (self._folder / "snippet.py").write_text(text)
            self._run("", "python snippet.py")
        elif block.language == "text":
            self._compare(f"line {block.line}", block.lines)
        else:
            for command in block.commands():
                if block.note == STACK:
                    self._printed = self._as_on_the_page(self._place.printed)
                else:
                    self._run(command.shell, self._placed(command.text))
                self._compare(command.text, command.expected)

    def _run(self, shell: str, command: str) -> None:
        code, printed = self.shells.run(shell, command)
        self._printed = self._as_on_the_page(printed)
        if code != 0:
            self.faults.append(f"{command}\nended with {code} and printed\n{printed}")

    def _compare(self, what: str, expected: tuple[str, ...]) -> None:
        if expected and not matches(expected, self._printed):
            shown = "\n".join(expected)
            self.faults.append(f"{what}\nprinted\n{self._printed}\nwhere the page says\n{shown}")

    def _placed(self, text: str) -> str:
        return text.replace(ROUTER, self._place.router).replace(EDGE, self._place.edge)

    def _as_on_the_page(self, text: str) -> str:
        return text.replace(self._place.router, ROUTER).replace(self._place.edge, EDGE)


def test_every_block_is_of_a_kind_that_is_run() -> None:
    wrong = [f"{page}:{block.line}" for page, block in _all_blocks() if block.language not in LANGUAGES]
    untitled = [f"{page}:{block.line}" for page, block in _all_blocks() if block.language == "yaml" and not block.title]
    assert (wrong, untitled) == ([], [])


def test_a_block_is_left_out_for_one_of_few_reasons_and_few_are() -> None:
    left_out = [(page, block) for page, block in _all_blocks() if block.skipped]
    assert {block.note for _, block in left_out} <= REASONS
    assert len(left_out) <= SKIPPED_AT_MOST
    assert {block.note for _, block in _all_blocks() if block.note and not block.skipped} <= {STACK}


def test_each_page_runs_something() -> None:
    assert len(PAGES) >= 9
    ran = {page for page, block in _all_blocks() if block.language in ("console", "python") and not block.skipped}
    assert ran == set(PAGES)


def test_a_page_that_says_something_else_is_found() -> None:
    assert matches(("listed  3 …", "…", "end"), "listed 3 things\n\na\nb\nend\n")
    assert matches(("…", "end"), "end\n")
    assert not matches(("listed 4",), "listed 3\n")
    assert not matches(("end",), "more\nend\n")
