"""The page of errors: each class of `shared.errors`, every code that the program gives it, and the exit codes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from generator.remedies import REMEDIES
from generator.tables import code, first_sentence, table
from shared import errors
from shared.cli import DONE, FAILED, FAULT, INTERRUPTED, USAGE
from shared.errors import IsthmusError

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("shared", "edge", "router", "cloud", "loadtests")
_INTRODUCTION = """# Errors

Over HTTP an error is `{"error": {"message", "type", "param", "code"}}`: `param` names the field at fault, and no
value is ever repeated. On the command line it is one line on standard error, and an exit code. 503 and 429 carry
`Retry-After`, or `x-should-retry: false` where no wait helps (OpenAI's clients heed both); never both.

"""


def page() -> str:
    """The whole page.

    Raises:
        KeyError: a class has no word of what to do about it, or there is one for a class that is gone.
    """
    kinds = list(_kinds(IsthmusError))
    if differing := {kind.__name__ for kind in kinds} ^ set(REMEDIES):
        raise KeyError(f"docs/generator/remedies.py and shared/errors differ: {', '.join(sorted(differing))}")
    codes = _codes()
    rows = [
        (
            ", ".join(code(each) for each in sorted({kind.default_code, *codes.get(kind.__name__, ())})),
            str(kind.status),
            code(kind.type),
            first_sentence(kind.__doc__),
            REMEDIES[kind.__name__],
        )
        for kind in kinds
    ]
    columns = ("code", "status", "type", "what happened", "what to do")
    return _INTRODUCTION + table(columns, rows) + "\n## Exit codes\n\n" + exit_codes()


def exit_codes() -> str:
    """The table of exit codes."""
    rows = [
        (str(DONE), "done"),
        (str(FAILED), "it failed; the line on standard error says why"),
        (str(USAGE), "command line, settings or machine do not allow it"),
        ("3", "a load test ran, and its figures say nothing (`isthmus loadtest run`)"),
    ]
    refusals: dict[int, list[str]] = {}
    for kind in _kinds(IsthmusError):
        if kind.exit_code not in (FAILED, USAGE):
            refusals.setdefault(kind.exit_code, []).append(kind.default_code)
    rows += [
        (str(number), ", ".join(code(each) for each in dict.fromkeys(names)))
        for number, names in sorted(refusals.items())
    ]
    rows += [(str(FAULT), "a fault of the program itself"), (str(INTERRUPTED), "interrupted")]
    return table(("exit code", "meaning"), rows)


def _kinds(kind: type[IsthmusError]) -> Iterator[type[IsthmusError]]:
    """In the order in which the tree is drawn."""
    yield kind
    own = [below for below in kind.__subclasses__() if below.__module__.startswith(f"{errors.__name__}.")]
    for below in sorted(own, key=lambda each: str(errors.__doc__).index(each.__name__)):
        yield from _kinds(below)


def _codes() -> dict[str, set[str]]:
    """Codes that are given where an error is raised, by the name of its class: written there, or as a constant."""
    trees = [
        ast.parse(path.read_text("utf-8"))
        for path in sorted(each for package in _PACKAGES for each in (_ROOT / package).rglob("*.py"))
    ]
    everywhere = {name: value for tree in trees for name, value in _constants(tree).items()}
    found: dict[str, set[str]] = {}
    for tree in trees:
        constants = everywhere | _constants(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            for keyword in node.keywords:
                if keyword.arg == "code" and (value := _text(keyword.value, constants)) is not None:
                    found.setdefault(node.func.id, set()).add(value)
    return found


def _constants(tree: ast.Module) -> dict[str, str]:
    """Names that the module gives a text once and for all."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _text(node: ast.expr, constants: dict[str, str]) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return constants.get(name)
