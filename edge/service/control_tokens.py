"""Keeps control tokens that a caller typed from acting as control tokens.

A template is rendered to text before it is cut into tokens, so `<|im_end|>` inside a tool result would end the
message and let the rest of it speak as the system. The engine tokenises the caller's texts both ways; where the two
differ, a word joiner (U+2060, invisible and without width) breaks the control token's spelling. The raw prompt of
/v1/completions is left alone: writing control tokens is what it is for.
"""

from __future__ import annotations

from typing import Any, Protocol

from shared.openai.control_text import ROUNDS, SCANNED, broken, built_around, texts_of, written_out

_OPENERS = "<[｜"
"""Every control token of the known tokenizer families holds one of these."""


class Tokenizer(Protocol):
    """The engine's own tokenizer."""

    async def tokenize(self, text: str, *, control: bool) -> list[tuple[int, str]]:
        """Ids and spellings of `text`; `control` says whether spelled control tokens count as such."""


class ControlTokens:
    """Finds and breaks control tokens; remembers which spellings are any."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, bool] = {}

    async def defused(self, body: dict[str, Any]) -> dict[str, Any]:
        """`body` with every control token in its messages and tools broken; the same object if there is none.

        Raises:
            InvalidRequest: the text is made so that breaking one control token forms another, or it is a key.
        """
        body = written_out(body)
        for _ in range(ROUNDS):
            found = await self._found([text for text in texts_of(body) if any(o in text for o in _OPENERS)])
            if not found:
                return body
            body = {name: broken(value, found) if name in SCANNED else value for name, value in body.items()}
        raise built_around()

    async def _found(self, texts: list[str]) -> list[str]:
        if not texts:
            return []
        joined = "\n".join(texts)
        acting = await self._tokenizer.tokenize(joined, control=True)
        inert = await self._tokenizer.tokenize(joined, control=False)
        if [token for token, _ in acting] == [token for token, _ in inert]:
            return []
        plain = {token for token, _ in inert}
        suspects = {spelling for token, spelling in acting if token not in plain and len(spelling) > 1}
        return sorted([s for s in suspects if s in joined and await self._is_control(s)], key=len, reverse=True)

    async def _is_control(self, spelling: str) -> bool:
        if spelling not in self._known:
            # Ordinary pieces of the vocabulary can differ too, next to a control token that was cut out.
            acting = await self._tokenizer.tokenize(spelling, control=True)
            inert = await self._tokenizer.tokenize(spelling, control=False)
            self._known[spelling] = acting != inert
        return self._known[spelling]
