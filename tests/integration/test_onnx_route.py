"""An ONNX package answers through the agent and the router: three real processes, the real model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from aiohttp.test_utils import unused_port

from edge.packages.catalogue import DEFAULT_MODEL
from edge.packages.library import Library
from shared.testing.models import model_source
from shared.testing.program import isthmus
from tests.edge.onnx_packages import NAME, install_onnx

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

QUESTION = "Which city is the capital of France?"


@dataclass(frozen=True)
class Pair:
    """A router and the one agent that it knows."""

    router_url: str
    agent_url: str


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """`isthmus edge serve` with the ONNX package, reporting to `isthmus router serve`."""
    home = tmp_path_factory.mktemp("onnx-route")
    gguf = Library(tmp_path_factory.mktemp("gguf")).pull(model_source(DEFAULT_MODEL))
    install_onnx(gguf, home)
    edge_port, router_port = unused_port(), unused_port()
    found = Pair(f"http://127.0.0.1:{router_port}", f"http://127.0.0.1:{edge_port}")
    edge = {"port": edge_port, "model": NAME, "context_tokens": 1024, "router": {"url": found.router_url}}
    with (
        isthmus("router", "serve", home=home, settings={"router": {"port": router_port}}, name="router") as router,
        isthmus("edge", "serve", home=home, settings={"edge": edge}, name="edge") as agent,
    ):
        router.wait_answer(f"{found.router_url}/healthz", 120)
        agent.wait_answer(f"{found.agent_url}/readyz", 300)
        router.wait_answer(f"{found.router_url}/readyz", 60)
        yield found


@pytest.fixture
async def client(pair: Pair) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{pair.router_url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_an_onnx_package_answers_through_agent_and_router(client: openai.AsyncOpenAI) -> None:
    """The capital of France is Paris, whole and streamed, and the answer says which tier gave it."""
    messages = [{"role": "user", "content": QUESTION}]
    raw = await client.chat.completions.with_raw_response.create(model=NAME, messages=messages, temperature=0)
    answer = raw.parse()
    text = answer.choices[0].message.content
    assert "Paris" in text
    assert raw.headers["x-isthmus-tier"] == "edge"
    assert answer.usage.prompt_tokens > 0
    stream = await client.chat.completions.create(model=NAME, messages=messages, temperature=0, stream=True)
    pieces = [choice.delta.content or "" async for part in stream for choice in part.choices]
    assert "".join(pieces) == text
    assert sum(map(bool, pieces)) > 1


async def test_what_the_package_lacks_is_refused_not_ignored(client: openai.AsyncOpenAI, pair: Pair) -> None:
    """Adapters: the agent says 400; the router, which knows it from the heartbeat, does not pass them on."""
    asked: Any = {"lora": "style"}
    messages = [{"role": "user", "content": QUESTION}]
    async with openai.AsyncOpenAI(base_url=f"{pair.agent_url}/v1", api_key="none", max_retries=0) as direct:
        with pytest.raises(openai.BadRequestError) as refused:
            await direct.chat.completions.create(model=NAME, messages=messages, extra_body=asked)
    assert refused.value.param == "lora"
    with pytest.raises(openai.BadRequestError, match="lora"):
        await client.chat.completions.create(model=NAME, messages=messages, extra_body=asked)


def test_the_agent_lists_the_context_of_a_slot(pair: Pair) -> None:
    import httpx

    (model,) = httpx.get(f"{pair.agent_url}/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == (NAME, 1024)
