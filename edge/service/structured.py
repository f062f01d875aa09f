"""Turns `response_format` into a grammar that the engine cannot leave.

The engine's own handling of `response_format` fences about half of a small model's answers in Markdown and blocks
every client for minutes on a large enum. Its llguidance grammars do neither, but accept a schema they cannot
compile without a word and then constrain nothing: so each one is compiled here first, by the same library.
"""

from __future__ import annotations

from typing import Any

import orjson
from llguidance import LLMatcher

from shared.errors import InvalidRequest

_ANY_OBJECT = {"type": "object"}
_LAYOUT = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
"""JSON on one line: where any white space is allowed, a small model can go on with it until its limit. It takes the
place of a caller's own `x-guidance`, which could relax what is enforced."""


def grammar_of(response_format: dict[str, Any] | None) -> str | None:
    """The grammar for a validated `response_format`; None where any text is allowed.

    Raises:
        InvalidRequest: the schema uses something that cannot be enforced here.
    """
    kind = (response_format or {}).get("type", "text")
    if response_format is None or kind == "text":
        return None
    schema = (response_format["json_schema"]["schema"] if kind == "json_schema" else _ANY_OBJECT) | _LAYOUT
    grammar = f"%llguidance {{}}\nstart: %json {orjson.dumps(schema).decode()}"
    if LLMatcher.validate_grammar(grammar):
        # The compiler's message quotes the schema, so it stays here.
        raise InvalidRequest(
            "The schema uses a keyword, a format or a pattern that this backend cannot enforce.",
            param="response_format",
            code="unsupported_schema",
        )
    return grammar
