"""Reads the blocks of a page that a test runs, and why one is not run.

A page holds fenced blocks of `console`, `python`, `yaml` and `text`. In a console block each line that begins with
a prompt (`$ `, or `device$ ` for another machine) is a command, with the lines after one that ends with a
backslash; what follows until the next prompt is what it prints, where `…` stands for anything. A YAML block has a
title: the file that it is. A text block is what the Python block before it prints. A comment before a block says
that it is not run, and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REASONS = frozenset({"needs a cluster", "needs another machine"})
"""Why a block may be left out; nothing else counts."""
STACK = "the test has started it"
"""What the comment before the block that starts the stack says: its commands are held against the fixture's output."""
LANGUAGES = frozenset({"console", "python", "yaml", "text"})
_COMMENT = re.compile(r"<!-- (not run: )?(.+) -->\Z")
_FENCE = re.compile(r"```(\S*)(?: title=\"([^\"]+)\")?\Z")
_PROMPT = re.compile(r"(router|device)?\$ (.+)\Z")


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block, where it is typed, and the lines that it prints."""

    shell: str
    text: str
    expected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page. `note` is the comment before it; `skipped` says that the comment names a reason."""

    language: str
    title: str
    lines: tuple[str, ...]
    line: int
    note: str
    skipped: bool

    def commands(self) -> Iterator[Command]:
        """The commands of a console block.

        Raises:
            ValueError: it does not begin with a prompt.
        """
        shell, text, expected = "", "", list[str]()
        for line in self.lines:
            prompt = _PROMPT.match(line)
            if text.endswith("\\") and not expected:
                text = f"{text}\n{line}"
            elif prompt:
                if text:
                    yield Command(shell, text, tuple(expected))
                shell, text, expected = prompt[1] or "", prompt[2], []
            elif text:
                expected.append(line)
            else:
                raise ValueError(f"line {self.line}: a console block begins with a prompt")
        yield Command(shell, text, tuple(expected))


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    found: list[Block] = []
    lines = page.read_text("utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            at += 1
            continue
        end = lines.index("```", at + 1)
        comment = _COMMENT.match(lines[at - 1]) if at else None
        found.append(
            Block(
                language=fence[1],
                title=fence[2] or "",
                lines=tuple(lines[at + 1 : end]),
                line=at + 1,
                note=comment[2] if comment else "",
                skipped=bool(comment and comment[1]),
            )
        )
        at = end + 1
    return found


def matches(expected: tuple[str, ...], printed: str) -> bool:
    """Whether lines that a page shows are what was printed: `…` alone in a line stands for any lines, within one for
    any signs. Runs of spaces count as one, and empty lines do not count."""
    shown = [_single(line) for line in expected if line.strip()]
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "…" else re.escape(line).replace("…", r"[^\n]*") + r"\n" for line in shown
    )
    said = "".join(f"{_single(line)}\n" for line in printed.splitlines() if line.strip())
    return re.fullmatch(pattern, said) is not None


def _single(line: str) -> str:
    return " ".join(line.split())
