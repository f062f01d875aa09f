"""Finds the line of a policy file on which what a message names stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

_INDEXED = re.compile(r"(patterns|word_lists)\[([0-9]+)\]")


def place_of(path: Path, mark: Any) -> str:
    """A file, and the line of it where that is known."""
    return f"{path}" if mark is None else f"{path}, line {mark.line + 1}"


def mark_of(node: yaml.Node | None, place: Sequence[int | str]) -> Any:
    """Where the deepest node on the way to `place` stands. A list is entered by index, or by the name of an entry."""
    mark = None if node is None else node.start_mark
    for part in place:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if getattr(k, "value", None) == str(part)), None)
            if found is None:
                break
            mark, node = found[0].start_mark, found[1]
        elif isinstance(node, yaml.SequenceNode):
            node = _entry(node, part)
            mark = mark if node is None else node.start_mark
    return mark


def line_of(root: yaml.Node | None, param: str) -> int | None:
    """The line of `rules.NAME.match.entities`, `cases.NUMBER.request`, `patterns[INDEX]` or `defaults.mode`, counted
    from 1."""
    parts: list[int | str] = list(param.split("."))
    if (indexed := _INDEXED.fullmatch(param)) is not None:
        parts = [indexed[1], int(indexed[2])]
    if parts[0] == "cases" and len(parts) > 1 and str(parts[1]).isdigit():
        parts[1] = int(parts[1]) - 1
    if parts[:2] == ["router", "policy"]:
        parts[:2] = ["defaults"]
    mark = mark_of(root, parts)
    return None if mark is None else mark.line + 1


def _entry(node: yaml.SequenceNode, part: int | str) -> yaml.Node | None:
    if isinstance(part, int):
        return node.value[part] if part < len(node.value) else None
    return next((each for each in node.value if _name_of(each) == part), None)


def _name_of(node: yaml.Node) -> str | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value.value for key, value in node.value if getattr(key, "value", None) == "name"), None)
