"""Decides whether prompt and explicit output limit fit the context of one slot, by the engine's own count.

The engine itself would run into the end of its context and say `length` where the caller asked for more: that is
right when no limit was given, and a broken promise when one was.
"""

from __future__ import annotations

from typing import Any, Protocol

import orjson

from edge.service.refusals import text_prompts, token_prompts
from edge.service.translation import EngineRequest
from shared.errors import ContextLengthExceeded
from shared.openai.facts import Endpoint

_TEMPLATE_TOKENS = 512
_TEMPLATE_TOKENS_PER_MESSAGE = 16


class Counter(Protocol):
    """Counts prompt tokens as the engine will."""

    async def count_chat(self, body: dict[str, Any]) -> int:
        """Tokens of a chat body after its template."""

    async def count_text(self, text: str) -> int:
        """Tokens of a raw prompt."""


async def check(request: EngineRequest, counter: Counter, *, context_tokens: int) -> None:
    """Refuse a request whose prompt and `max_tokens` cannot fit.

    Raises:
        ContextLengthExceeded: both numbers are stated. A prompt that alone is too long is the engine's to refuse.
    """
    if request.max_tokens is None or _at_most(request) + request.max_tokens <= context_tokens:
        return
    prompt_tokens = await _count(request, counter)
    if prompt_tokens + request.max_tokens > context_tokens:
        raise ContextLengthExceeded.of(
            needed_tokens=prompt_tokens + request.max_tokens,
            limit_tokens=context_tokens,
            prompt_tokens=prompt_tokens,
            param=request.max_tokens_param,
        )


def _at_most(request: EngineRequest) -> int:
    """An upper bound of the prompt's tokens without asking: no token covers less than one byte of the body."""
    if request.endpoint is Endpoint.CHAT:
        messages = request.body["messages"]
        if request.body.get("tools"):
            return 2**31  # how a template spells out tools is its own affair
        size = len(orjson.dumps(messages))
        return size + _TEMPLATE_TOKENS + _TEMPLATE_TOKENS_PER_MESSAGE * len(messages)
    return len(orjson.dumps(request.body["prompt"]))


async def _count(request: EngineRequest, counter: Counter) -> int:
    if request.endpoint is Endpoint.CHAT:
        return await counter.count_chat(request.body)
    prompt = request.body["prompt"]
    counts = [len(ids) for ids in token_prompts(prompt)]
    for text in text_prompts(prompt):
        counts.append(await counter.count_text(text))  # noqa: PERF401 - one at a time, the engine has few threads
    return max(counts)
