"""Takes usage and timings out of the engine's closing events, joined over parallel choices, and why these ended."""

from __future__ import annotations

from typing import Any

from edge.service.rates import Timings

_CLOSING = b'"timings":'
"""Structural: inside a JSON string the first quote would be escaped."""


def is_closing(event: bytes) -> bool:
    """Whether an event carries the engine's figures."""
    return _CLOSING in event


class Closing:
    """Figures of one answer, gathered from one closing event for each of its sequences."""

    def __init__(self, *, prompts: int) -> None:
        self._prompts = prompts
        self._usages: list[dict[str, Any]] = []
        self.timings: list[Timings] = []
        self.finish_reasons: list[str] = []

    def take(self, value: dict[str, Any]) -> None:
        """Move the figures out of a closing chunk."""
        usage = value.pop("usage", None)
        if isinstance(usage, dict):
            self._usages.append(usage)
        timings = Timings.of(value.pop("timings", None))
        if timings is not None:
            self.timings.append(timings)

    def finish(self, chunk: dict[str, Any]) -> None:
        """Note why a choice ended, if one did with this chunk."""
        ends = (choice.get("finish_reason") for choice in chunk.get("choices") or ())
        self.finish_reasons += [end for end in ends if end is not None]

    @property
    def usage(self) -> dict[str, Any] | None:
        """OpenAI usage of the whole answer; None if the engine gave none.

        Choices of one prompt share its tokens, so those count once; several prompts add up.
        """
        if not self._usages:
            return None
        completion = sum(usage.get("completion_tokens", 0) for usage in self._usages)
        counted = self._usages if self._prompts > 1 else self._usages[:1]
        prompt = sum(usage.get("prompt_tokens", 0) for usage in counted)
        cached = sum((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for usage in counted)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
