"""Gathers what a turn, a part or a tool's result says, piece by piece, in the order in which a reader would see it."""

from __future__ import annotations

from typing import Any

_SPEAKING = frozenset({"content", "text", "refusal", "thinking", "reasoning_content", "output", "summary", "source"})
"""Keys under which the APIs keep what is said; a part may hold parts, as the result of a tool does."""
_MAX_DEPTH = 8
"""Parts within parts: no API nests them deeper, and what does is scanned piece by piece all the same."""


def pieces_of(node: Any, depth: int = _MAX_DEPTH) -> list[str]:
    """The texts of `node`, those of its parts included."""
    if isinstance(node, list):
        return [piece for part in node if isinstance(part, dict) for piece in pieces_of(part, depth)]
    if not isinstance(node, dict) or depth == 0:
        return []
    found: list[str] = []
    for key, value in node.items():
        if key in _SPEAKING:
            found += [value] if isinstance(value, str) else pieces_of(value, depth - 1)
    return found


def turns_of(body: dict[str, Any]) -> list[Any] | None:
    """The turns of a conversation, under whichever name an API has them; what it says ahead of them stands first."""
    turns = body.get("messages")
    if not isinstance(turns, list):
        turns = body.get("input")
        if not isinstance(turns, list) or not any(isinstance(turn, dict) for turn in turns):
            return None
    ahead = [{"content": body[name]} for name in ("system", "instructions") if body.get(name)]
    return [*ahead, *turns] if ahead else turns


def is_of_user(turn: Any) -> bool:
    """Whether the caller says it."""
    return isinstance(turn, dict) and turn.get("role") == "user"


def is_of_tool(turn: Any) -> bool:
    """Whether it is what a tool gave back."""
    if not isinstance(turn, dict):
        return False
    return turn.get("role") in ("tool", "function") or turn.get("type") == "function_call_output"
