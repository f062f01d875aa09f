"""The native runtime: loads a package, and holds the state of one sequence. The only module that imports it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as og

from edge.runtime.onnx.sampling import Row


class TemplateRefused(Exception):
    """The package's chat template cannot render these messages."""


class Model:
    """A loaded package. `folder` holds the checked configuration and links to the verified files."""

    def __init__(self, folder: Path) -> None:
        self._model = og.Model(str(folder))
        self._tokenizer = og.Tokenizer(self._model)

    def prompt_of(self, messages_json: str) -> str:
        """The messages as the package's chat template spells them, ready for an answer.

        Raises:
            TemplateRefused: the template raises, or there is none.
        """
        try:
            return str(self._tokenizer.apply_chat_template(messages_json, add_generation_prompt=True))
        except RuntimeError:
            raise TemplateRefused from None

    def sequence(self, limit_tokens: int) -> SequenceState:
        """The state of a new sequence of at most `limit_tokens`, whose cache is reserved now."""
        return SequenceState(self._model, limit_tokens)


class SequenceState:
    """Keys and values of one sequence, and the logits after its last token."""

    def __init__(self, model: Any, limit_tokens: int) -> None:
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=limit_tokens)
        self._generator = og.Generator(model, params)

    def append(self, tokens: Sequence[int]) -> None:
        """Compute `tokens`, which must fit."""
        self._generator.append_tokens(np.asarray(tokens, dtype=np.int32))

    def logits(self) -> Row:
        """Logits after the last token."""
        logits = self._generator.get_logits()
        last: Row = logits.reshape(-1, logits.shape[-1])[-1]
        return last
