"""What the load test and the demo say to a model. The card number is the published test number of its scheme."""

from __future__ import annotations

import orjson

PUBLIC = "Which city is the capital of France?"
CODE = "Write a Python function that returns the sum of a list."
PERSONAL = "My card is 4111 1111 1111 1111. Which city is the capital of France?"

_TOPICS = (
    "rivers", "bridges", "bread", "winds", "clocks", "stars", "salt", "maps", "trees", "music", "ships", "glass",
)  # fmt: skip


def load_body(number: int, *, model: str, max_tokens: int) -> bytes:
    """A streamed request whose text differs from number to number, so that no cache answers for the model."""
    text = f"({number}) Tell me one short fact about {_TOPICS[number % len(_TOPICS)]}."
    return orjson.dumps(chat(text, model=model, max_tokens=max_tokens))


def chat(text: str, *, model: str, max_tokens: int) -> dict[str, object]:
    """A streamed greedy chat request with usage."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
