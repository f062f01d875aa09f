"""Reads a table of JSON lists, `{"columns": ["name", "ssn"], "rows": [["…", "…"]]}`, as lines of cells."""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import View, replaced_view

_JOINTS = re.compile(
    r"(?P<next>,\s{1,64}(?=[\"0-9ntf-]))|(?P<before>(?<!\s)\s{1,64}(?=\]))"
    r"|[\[\]][\s,\[\]]{0,128}(?:\"[A-Za-z_]{1,24}\"\s{0,8}:\s{0,8}\[[0-9,\s]*+\][\s,]{0,128})?"
    r"(?:\"[A-Za-z_]{1,24}\"\s{0,8}:[\s\[]{0,128}\[\s{0,64})?"
)
TRIGGERS = (rb"\"\s{0,32}\]\s{0,32},\s{0,32}(?:\"[A-Za-z_]{1,24}\"\s{0,8}:\s{0,8})?\[",)


def as_lines(view: View) -> Iterator[View]:
    """The text with a line for each list."""
    yield replaced_view(view, _JOINTS, _joint)


def _joint(match: re.Match[str]) -> str:
    if match["next"]:
        return ","
    return "" if match["before"] else "\n"
