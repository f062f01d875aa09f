"""Text to tokens and back: the package's own tokenizer, output as whole characters, stop strings held back."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from llguidance import LLTokenizer


@dataclass(frozen=True, slots=True)
class Piece:
    """One token with its bytes, which need not be whole characters."""

    token: int
    raw: bytes

    @property
    def text(self) -> str:
        """The bytes as text; bytes of part of a character become replacement marks."""
        return self.raw.decode(errors="replace")


class Vocabulary:
    """The tokenizer of one package."""

    def __init__(self, tokenizer_json: str, *, end_tokens: Sequence[int]) -> None:
        self.native = LLTokenizer(tokenizer_json, eos_token=list(end_tokens))
        self.size: int = self.native.vocab_size
        self._pieces: dict[int, Piece] = {}

    def tokens(self, text: str, *, control: bool) -> list[int]:
        """Tokens of `text`; with `control` off, the spelling of a control token is ordinary text."""
        found: list[int] = self.native.tokenize_str(text)
        if control or not any(self.is_control(token) for token in found):
            return found
        inert: list[int] = []
        for token in found:
            spelling = self.piece(token).text
            # Cut in two, a spelling cannot be read as the control token that it spells.
            parts = (spelling[:1], spelling[1:]) if self.is_control(token) else ()
            inert.extend(part for half in parts for part in self.tokens(half, control=False)) if parts else (
                inert.append(token)
            )
        return inert

    def piece(self, token: int) -> Piece:
        """The token with its bytes."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = Piece(token, self.native.decode_bytes([token]))
        return piece

    def is_control(self, token: int) -> bool:
        """Whether the token is one that text cannot spell."""
        return bool(self.native.is_special_token(token))


class TextStream:
    """Turns tokens into text: whole characters only, and nothing that may be the beginning of a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self.stopped = False

    def feed(self, raw: bytes) -> str:
        """The text that may be sent now. After a stop string, `stopped` is true and nothing more comes."""
        self._held += self._decoder.decode(raw)
        return self._cut()

    def end(self) -> str:
        """What was held back, at the end of the output."""
        self._held += self._decoder.decode(b"", final=True)
        text, rest = self._cut(), self._held
        self._held = ""
        return text if self.stopped else text + rest

    def _cut(self) -> str:
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            text, self._held = self._held[: min(found)], ""
            return text
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
