"""Whether a prompt and an explicit limit fit, with as few questions to the engine as possible."""

from __future__ import annotations

from typing import Any

import pytest

from edge.service import fit
from edge.service.translation import translate
from shared.errors import ContextLengthExceeded
from shared.openai.facts import Endpoint
from tests.edge.service.fakes import FACTS, MODEL


class _Counter:
    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.asked = 0

    async def count_chat(self, body: dict[str, Any]) -> int:
        self.asked += 1
        return self.tokens

    async def count_text(self, text: str) -> int:
        self.asked += 1
        return self.tokens


async def _check(counter: _Counter, endpoint: Endpoint = Endpoint.CHAT, **fields: Any) -> None:
    prompt = (
        {"prompt": "hi" * 100}
        if endpoint is Endpoint.COMPLETIONS
        else {"messages": [{"role": "user", "content": "hi"}]}
    )
    await fit.check(translate(endpoint, {"model": MODEL, **prompt, **fields}, FACTS), counter, context_tokens=2048)


async def test_a_short_prompt_is_not_counted() -> None:
    counter = _Counter(10)
    await _check(counter, max_tokens=256)
    await _check(counter)  # without a limit the answer takes what is left
    assert counter.asked == 0


@pytest.mark.parametrize("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS])
async def test_the_limit_holds_to_the_token(endpoint: Endpoint) -> None:
    await _check(_Counter(48), endpoint, max_tokens=2000)
    with pytest.raises(ContextLengthExceeded) as caught:
        await _check(_Counter(49), endpoint, max_tokens=2000)
    assert "2049 tokens (49 in the prompt)" in caught.value.message
    assert "2048" in caught.value.message
    assert caught.value.param == "max_tokens"


async def test_token_ids_count_themselves() -> None:
    counter = _Counter(0)
    await _check(counter, Endpoint.COMPLETIONS, prompt=[1] * 48, max_tokens=2000)
    with pytest.raises(ContextLengthExceeded):
        await _check(counter, Endpoint.COMPLETIONS, prompt=[[1], [1] * 49], max_tokens=2000)
    assert counter.asked == 0


async def test_tools_are_always_counted() -> None:
    """What a template makes of a tool is longer than the tool."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    with pytest.raises(ContextLengthExceeded):
        await _check(_Counter(2040), tools=tools, max_completion_tokens=16)
