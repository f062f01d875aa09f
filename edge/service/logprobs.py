"""Brings the engine's log-probabilities into OpenAI's two shapes: a list of entries for chat, four columns for text."""

from __future__ import annotations

from typing import Any

_ENTRY = ("token", "logprob", "bytes")


class LogprobShaper:
    """Rewrites the chunks of one answer; remembers each choice's length for the text offsets of the legacy shape."""

    def __init__(self, *, chat: bool, top: int) -> None:
        self._chat = chat
        self._top = top
        self._offsets: dict[int, int] = {}

    def rewrite(self, chunk: dict[str, Any]) -> None:
        """Replace the log-probabilities of every choice in `chunk`."""
        for choice in chunk.get("choices") or ():
            entries = (choice.get("logprobs") or {}).get("content")
            if not isinstance(entries, list):
                continue
            if self._chat:
                choice["logprobs"] = {"content": [self._entry(entry) for entry in entries], "refusal": None}
            else:
                choice["logprobs"] = self._columns(choice.get("index", 0), entries)

    def _entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        alternatives = entry.get("top_logprobs") or []
        shaped = {name: entry.get(name) for name in _ENTRY}
        shaped["top_logprobs"] = [{name: a.get(name) for name in _ENTRY} for a in alternatives[: self._top]]
        return shaped

    def _columns(self, index: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
        columns: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for entry in entries:
            offset = self._offsets.get(index, 0)
            self._offsets[index] = offset + len(entry["token"])
            columns["tokens"].append(entry["token"])
            columns["token_logprobs"].append(entry["logprob"])
            columns["text_offset"].append(offset)
            alternatives = (entry.get("top_logprobs") or [])[: self._top]
            columns["top_logprobs"].append({a["token"]: a["logprob"] for a in alternatives})
        if self._top == 0:
            columns["top_logprobs"] = None
        return columns
