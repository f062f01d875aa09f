"""`engine.deterministic`: a greedy answer depends on its prompt alone, whatever is cached, beside it, or cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from edge.packages.package import Package
from tests.edge.service.harness import Running, real_engine, running_agent

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
_PROMPTS = ("Tell a story about a lighthouse.", "List five rivers of Europe.", "Why is the sky blue?")
_LONG = "Here is what I read: " + " ".join(f"Station {number} is called Stop {number}." for number in range(1, 10))
_TOKENS = 24


@pytest.fixture
async def running(installed_model: Package, tmp_path: Path) -> AsyncIterator[Running]:
    """Two slots: what is asked at once is computed in one batch."""
    async with running_agent(real_engine(installed_model, tmp_path / "run", slots=2), slots=2, queue=16) as running:
        yield running


async def _answer(running: Running, *messages: dict[str, str], tokens: int = _TOKENS, **fields: Any) -> str:
    body = {"messages": list(messages), "temperature": 0, "max_tokens": tokens, **fields}
    async with running.chat(**body) as response:
        assert response.status == 200, await response.text()
        content = (await response.json())["choices"][0]["message"]["content"]
        assert isinstance(content, str)
        return content


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def test_a_greedy_answer_is_the_same_cold_cached_and_batched(running: Running) -> None:
    cold = [await _answer(running, _user(prompt)) for prompt in _PROMPTS]
    assert len(set(cold)) == len(_PROMPTS)
    assert [await _answer(running, _user(prompt)) for prompt in _PROMPTS] == cold, "cached"
    together = [_answer(running, _user(prompt)) for prompt in (*_PROMPTS, *reversed(_PROMPTS))]
    assert await asyncio.gather(*together) == [*cold, *reversed(cold)], "batched"


async def test_a_long_prompt_read_beside_another_stream_changes_neither(running: Running) -> None:
    """A prompt is then read in pieces between the tokens of the other."""
    alone = [await _answer(running, _user(text)) for text in (_PROMPTS[0], _LONG)]
    asked = (_answer(running, _user(text)) for text in (_PROMPTS[0], f"{_PROMPTS[1]} {_LONG}", _LONG))
    first, _, read = await asyncio.gather(*asked)
    assert [first, read] == alone


async def test_an_answer_that_was_cut_off_goes_on_as_it_would_have(running: Running) -> None:
    """Resume: whatever the cut, the text so far and what follows are the uninterrupted answer."""
    for prompt in _PROMPTS[:2]:
        whole = await _answer(running, _user(prompt))
        for tokens in (1, 6, 13):
            begun = await _answer(running, _user(prompt), tokens=tokens)
            assert whole.startswith(begun)
            rest = await _answer(
                running, _user(prompt), {"role": "assistant", "content": begun},
                tokens=_TOKENS - tokens, continue_final_message=True,
            )  # fmt: skip
            assert begun + rest == whole, (prompt, tokens)
