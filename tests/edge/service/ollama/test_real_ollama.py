"""The agent over the real engine with the real model, asked by the official Ollama client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import ollama
import orjson
import pytest
import pytest_asyncio

from edge.packages.package import Package
from tests.edge.service.fakes import MODEL
from tests.edge.service.harness import PARIS, Running, idle, real_engine, running_agent, until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

QUESTION = [{"role": "user", "content": PARIS}]
GREEDY = {"temperature": 0, "num_predict": 24}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(installed_model: Package, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """One agent with one slot for all tests, which leave it idle."""
    async with running_agent(real_engine(installed_model, tmp_path_factory.mktemp("run"), slots=1)) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(running: Running) -> AsyncIterator[ollama.AsyncClient]:
    """The official client."""
    async with ollama.AsyncClient(host=running.url) as client:
        yield client


async def test_the_official_client_chats_and_generates(client: ollama.AsyncClient) -> None:
    whole = await client.chat(MODEL, QUESTION, options=GREEDY)
    assert "Paris" in (whole.message.content or "")
    assert (whole.done, whole.done_reason, whole.prompt_eval_count) == (True, "stop", 38)
    assert whole.eval_count is not None
    assert 0 < whole.eval_count <= 24
    parts = [part async for part in await client.chat(MODEL, QUESTION, options=GREEDY, stream=True)]
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts].count(True) == 1
    figures = parts[-1]
    spent = (figures.prompt_eval_duration or 0) + (figures.eval_duration or 0)
    assert 0 < spent <= (figures.total_duration or 0)

    generated = await client.generate(MODEL, PARIS, options=GREEDY)
    assert generated.response == whole.message.content
    pieces = [part.response async for part in await client.generate(MODEL, PARIS, options=GREEDY, stream=True)]
    assert "".join(piece or "" for piece in pieces) == generated.response
    raw = await client.generate(
        MODEL, "The capital of France is", raw=True, options=GREEDY | {"num_predict": 2}, logprobs=True, top_logprobs=2
    )
    assert (raw.response, raw.done_reason) == (" Paris.", "length")
    assert raw.logprobs is not None
    assert [entry.token for entry in raw.logprobs] == [" Paris", "."]
    assert all(len(entry.top_logprobs or ()) == 2 for entry in raw.logprobs)
    assert (await client.generate(MODEL, "")).done_reason == "load"


async def test_a_format_and_tools_are_kept_to(client: ollama.AsyncClient) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    shaped = await client.chat(MODEL, QUESTION, format=schema, options=GREEDY)
    assert orjson.loads(shaped.message.content or "")["city"] in ("Paris", "Rome")

    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: one
            b: the other
        """
        return a + b

    call = {"function": {"name": "add", "arguments": {"a": 3, "b": 4}}}
    history = [
        {"role": "user", "content": "What is 3 + 4?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "add", "content": "7"},
    ]
    told = await client.chat(MODEL, history, tools=[add], options=GREEDY | {"num_predict": 4})
    assert told.done
    assert told.prompt_eval_count is not None
    assert told.prompt_eval_count > 38  # tools, call and result stand in the prompt


async def test_models_and_refusals(client: ollama.AsyncClient) -> None:
    (listed,) = (await client.list()).models
    assert listed.model == f"{MODEL}:latest"
    assert listed.size is not None
    assert listed.details is not None
    assert (listed.details.parameter_size, listed.details.quantization_level) == ("134.52M", "Q4_1")
    (loaded,) = (await client.ps()).models
    assert loaded.size is not None
    assert loaded.size > listed.size  # the process, with its cache, as measured
    shown = await client.show(listed.model)
    assert shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["llama.context_length"] == 1024
    assert shown.modelinfo["general.parameter_count"] == 134_515_008

    async def refused(asked: Any) -> tuple[int, str]:
        with pytest.raises(ollama.ResponseError) as caught:
            await asked
        return caught.value.status_code, caught.value.error

    assert await refused(client.chat("gpt-4o", QUESTION)) == (404, "model 'gpt-4o' not found")
    assert await refused(client.embed(MODEL, "x")) == (400, "This model does not support embeddings.")
    status, error = await refused(client.chat(MODEL, [{"role": "user", "content": "word " * 3000}]))
    assert status == 400
    assert "1024 tokens" in error
    with pytest.raises(ollama.ResponseError, match="not found"):
        async for _ in await client.generate("gpt-4o", "x", stream=True):
            pass


async def test_a_client_that_leaves_ends_the_engines_work(running: Running, client: ollama.AsyncClient) -> None:
    """SSE-03"""
    stream = await client.generate(MODEL, "Count to a thousand.", stream=True)
    await anext(aiter(stream))
    await stream.aclose()  # type: ignore[attr-defined]
    await until(lambda: idle(running))
    whole = asyncio.create_task(client.generate(MODEL, "Count to a thousand."))
    await until(lambda: running.agent.admission.busy == 1)
    whole.cancel()
    await until(lambda: idle(running))
    assert "Paris" in ((await client.chat(MODEL, QUESTION, options=GREEDY)).message.content or "")


async def test_penalties_look_back_as_far_as_the_caller_says(client: ollama.AsyncClient) -> None:
    """A window of nothing is no penalty; one beyond the context is the context, and takes no memory for more."""

    async def said(**options: float) -> str:
        answer = await client.generate(MODEL, "Say one two one two one two.", options=GREEDY | options)
        return answer.response

    plain = await said()
    assert await said(repeat_penalty=5.0, repeat_last_n=0) == plain
    whole = await said(repeat_penalty=5.0, repeat_last_n=-1)
    assert whole != plain
    assert await said(repeat_penalty=5.0, repeat_last_n=2**31 - 1) == whole
