"""Shows the played rows to people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from loadtests.demo.expectations import Observed, Situation
from loadtests.demo.play import Played

_WORDS = 8
_MAX_CHARS = 48


def table(played: Sequence[Played]) -> Table:
    """One line a row: what was sent, what was decided, how fast, the first words, and whether policy agrees."""
    shown = Table(title="Isthmus demo")
    # In a narrow terminal the long texts wrap and the figures stay whole.
    shown.add_column("prompt", min_width=14)
    shown.add_column("class", no_wrap=True)
    shown.add_column("tier", no_wrap=True)
    shown.add_column("reason", min_width=12)
    for name in ("TTFT", "tokens/s"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("answer", min_width=16, max_width=_MAX_CHARS)
    shown.add_column("policy", no_wrap=True)
    for each in played:
        shown.add_row(*cells(each))
    return shown


def cells(each: Played) -> tuple[str, ...]:
    """The cells of one line."""
    situation = "" if each.row.situation is Situation.NORMAL else f" ({each.row.situation})"
    kind = escape(each.row.kind + situation)
    seen = each.observed
    if seen is None:
        return kind, "-", "-", "-", "-", "-", escape(f"skipped: {each.skipped}"), "-"
    return (
        kind,
        escape(seen.privacy_class or "-"),
        escape(seen.tier or "-") if seen.status == 200 else "-",
        escape((seen.reason if seen.status == 200 else seen.code or seen.reason) or "-"),
        "-" if seen.ttft_ms is None else f"{seen.ttft_ms:.0f} ms",
        "-" if seen.tokens_per_s is None else f"{seen.tokens_per_s:.0f}",
        escape(answer_of(seen)),
        "[green]ok[/]" if each.wrong is None else "[bold red]WRONG[/]",
    )


def answer_of(seen: Observed) -> str:
    """The first words of a good answer, else what came instead."""
    if seen.status == 0:
        return "no answer"
    if seen.status != 200:
        return f"{seen.status} {seen.code or ''}".strip()
    words = " ".join(seen.text.split()[:_WORDS])
    return f"{words} [{seen.failure}]" if seen.failure else words
