"""Checks the lists of a GGUF file's tokenizer that the engine reads without looking at what they are.

llama.cpp takes the bytes of scores and token types as 32-bit numbers whatever the file says of them: of narrower ones
it reads past the end of the list. A text that stands twice among the tokens aborts it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from itertools import pairwise

from edge.packages.ggml_types import FLOAT32, INT32, UINT32
from edge.packages.gguf import GgufArray, GgufHeader
from shared.errors import ModelCorrupt

_SCORES, _TYPES = "tokenizer.ggml.scores", "tokenizer.ggml.token_type"
_SUPPRESSED = "tokenizer.ggml.suppress_tokens"
_ELEMENTS = {_SCORES: (FLOAT32,), _TYPES: (INT32, UINT32), _SUPPRESSED: (INT32, UINT32)}
_CHUNK_BYTES = 1 << 20
_LENGTH = struct.Struct("<Q")


def check_vocabulary(fd: int, header: GgufHeader, tokens: GgufArray) -> None:
    """Refuse lists that the engine would misread; `tokens` are the texts of the open file `fd`.

    Raises:
        ModelCorrupt: one has elements of another type or number, ids beyond the tokens, or the same text twice.
    """
    for key, elements in _ELEMENTS.items():
        if key in header.metadata:
            _check_elements(fd, header, key, elements)
    for key in (_SCORES, _TYPES):
        if key in header.metadata and _length(header.metadata[key]) != tokens.count:
            raise ModelCorrupt(f"{key} has not one entry for each of the {tokens.count} tokens.", param=key)
    suppressed = header.metadata.get(_SUPPRESSED)
    if suppressed is not None and not _are_ids(suppressed, tokens.count):
        raise ModelCorrupt(f"{_SUPPRESSED} holds an id beyond the {tokens.count} tokens.", param=_SUPPRESSED)
    if _repeats(_texts(fd, tokens)):
        raise ModelCorrupt("tokenizer.ggml.tokens holds a text twice.", param="tokenizer.ggml.tokens")


def _check_elements(fd: int, header: GgufHeader, key: str, elements: tuple[int, ...]) -> None:
    """The type of a list's elements stands behind the key and the type of the value."""
    if isinstance(header.metadata[key], tuple | GgufArray):
        start, _ = header.extents[key]
        (found,) = struct.unpack("<I", os.pread(fd, 4, start + 8 + len(key.encode()) + 4))
        if found in elements:
            return
    raise ModelCorrupt(f"{key} is no list of 32-bit numbers of its kind.", param=key)


def _length(value: object) -> int:
    if isinstance(value, GgufArray):
        return value.count
    return len(value) if isinstance(value, tuple) else 0


def _are_ids(value: object, tokens: int) -> bool:
    """A list that is too long to have been kept counts as none: nobody suppresses so many."""
    return isinstance(value, tuple) and all(0 <= each < tokens for each in value)


def _repeats(texts: Iterator[bytes]) -> bool:
    """Whether a text stands twice; empty ones the engine gives names of their own.

    By 64-bit hashes, which are small: two of the million that a file may have are equal by chance once in 30 million.
    """
    return any(one == other for one, other in pairwise(sorted(hash(text) for text in texts if text)))


def _texts(fd: int, tokens: GgufArray) -> Iterator[bytes]:
    """The tokens' texts, one after the other; lengths were checked when the header was read."""
    window, at = b"", 0
    offset, end = tokens.offset, tokens.offset + tokens.size_bytes
    for _ in range(tokens.count):
        while (text_end := _text_end(window, at)) is None:
            chunk = os.pread(fd, min(_CHUNK_BYTES, end - offset), offset)
            if not chunk:
                raise ModelCorrupt("The file shrank while it was read.", param="file")
            window, at, offset = window[at:] + chunk, 0, offset + len(chunk)
        yield window[at + _LENGTH.size : text_end]
        at = text_end


def _text_end(window: bytes, at: int) -> int | None:
    """Where the text ends whose length stands at `at`; None if not all of it is in the window."""
    if at + _LENGTH.size > len(window):
        return None
    end: int = at + _LENGTH.size + _LENGTH.unpack_from(window, at)[0]
    return end if end <= len(window) else None
