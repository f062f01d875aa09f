"""The events of one answer, in the form in which llama.cpp's server writes them: the service reads one form."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from edge.runtime.onnx.sequence import Finished, Output, Progress

DONE = b"data: [DONE]\n\n"


class Chunks:
    """Writes the events of one answer."""

    def __init__(self, *, chat: bool, model: str) -> None:
        self._chat = chat
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._opened: set[int] = set()

    def progress(self, progress: Progress) -> bytes:
        """So much of a prompt is computed: a sign of life, which the service does not pass on."""
        figures = {
            "total": progress.total_tokens,
            "cache": 0,
            "processed": progress.processed_tokens,
            "time_ms": round(progress.elapsed_ms),
        }
        return _event({**self._head, "choices": [], "prompt_progress": figures})

    def output(self, index: int, output: Output) -> bytes:
        """Text of one choice; before the first comes the chunk with the role."""
        logprobs = {"content": output.logprobs} if output.logprobs is not None else None
        shown = {"delta": {"content": output.text}} if self._chat else {"text": output.text}
        return self._opening(index) + self._choice(index, **shown, logprobs=logprobs, finish_reason=None)

    def finished(self, index: int, finished: Finished) -> bytes:
        """The finish reason of one choice, then its figures."""
        shown: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        end = self._choice(index, **shown, logprobs=None, finish_reason=finished.reason)
        usage = {
            "prompt_tokens": finished.prompt_tokens,
            "completion_tokens": finished.output_tokens,
            "total_tokens": finished.prompt_tokens + finished.output_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        timings = {
            "cache_n": 0,
            "prompt_n": finished.prompt_tokens,
            "prompt_ms": finished.prompt_ms,
            "predicted_n": finished.output_tokens,
            "predicted_ms": finished.output_ms,
        }
        return self._opening(index) + end + _event({**self._head, "choices": [], "usage": usage, "timings": timings})

    @staticmethod
    def failed() -> bytes:
        """The runtime failed: the one error event, after which nothing comes."""
        return _event({"error": {"code": 500, "type": "server_error", "message": "The runtime failed."}})

    def _opening(self, index: int) -> bytes:
        if not self._chat or index in self._opened:
            return b""
        self._opened.add(index)
        return self._choice(index, delta={"role": "assistant", "content": None}, logprobs=None, finish_reason=None)

    def _choice(self, index: int, **fields: Any) -> bytes:
        return _event({**self._head, "choices": [{"index": index, **fields}]})


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
