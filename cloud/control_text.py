"""Keeps control tokens that a caller typed from acting as control tokens, before the engine renders its template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shared.openai.control_text import ROUNDS, broken, built_around, texts_of, written_out


class ControlText:
    """Breaks the spellings of one tokenizer's added tokens; a text that holds none costs one search for each."""

    def __init__(self, spellings: Iterable[str]) -> None:
        # The tokenizer cuts the longest out first; one character alone cannot be broken.
        self._spellings = sorted((each for each in spellings if len(each) > 1), key=len, reverse=True)

    def defused(self, body: dict[str, Any]) -> dict[str, Any]:
        """`body` (`messages`, `tools`) with every such spelling broken; the same object if there is none.

        Raises:
            InvalidRequest: the text is made so that breaking one control token forms another, or it is a key.
        """
        body = written_out(body)
        for _ in range(ROUNDS):
            found = [spelling for spelling in self._spellings if any(spelling in text for text in texts_of(body))]
            if not found:
                return body
            body = {name: broken(value, found) for name, value in body.items()}
        raise built_around()

    def defuse(self, request: Any) -> Any:
        """The engine's chat request `request`, or a copy whose texts are broken; raises as `defused`."""
        dumped = {"messages": request.messages, "tools": [tool.model_dump() for tool in request.tools or ()]}
        changed = self.defused(dumped)
        if changed is dumped:
            return request
        tools = [type(old).model_validate(new) for old, new in zip(request.tools or (), changed["tools"], strict=True)]
        return request.model_copy(update={"messages": changed["messages"], "tools": tools or request.tools})
