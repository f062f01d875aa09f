"""Vectors from the real engine: the real model, whose file is made to say how it pools, asked by official clients."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import ollama
import openai
import pytest
import pytest_asyncio

from edge.memory.pressure import Step
from edge.packages.library import Library
from edge.packages.model_file import inspect
from edge.packages.package import Package
from edge.service.surface import thermal_critical
from shared.errors import ModelCorrupt
from shared.testing.models import write_gguf
from tests.edge.service.harness import Running, idle, real_engine, running_agent, until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]
NAME = "embedder"
WIDTH = 576
_COUNTS_END = 24
MEAN, LAST = 1, 3
END = 2
"""The model's end of a text."""
WHOLE_TOKENS, CONTEXT_TOKENS, SHORT_CONTEXT_TOKENS = 64, 512, 256
"""What fits one micro-batch of the one engine, and the context of the other, before and after it gave memory back."""
MOST_TOKENS = CONTEXT_TOKENS - 1
"""The engine wants room for one token more than it reads."""
LONG = "word " * (CONTEXT_TOKENS + 80)


def pooled(model: Path, pooling: int, path: Path) -> Path:
    """A copy of the model whose header says how a vector is made; where the last token makes it, each text ends with
    an end token, as in models that were trained for it."""
    keys = [_key(b"llama.pooling_type", struct.pack("<II", 4, pooling))]
    if pooling == LAST:
        keys.append(_key(b"tokenizer.ggml.add_eos_token", struct.pack("<I?", 7, True)))
    filler = -(sum(map(len, keys)) + len(_filler(0))) % 32  # what follows keeps its alignment
    keys.append(_filler(filler))
    data = model.read_bytes()
    count = struct.unpack("<Q", data[16:_COUNTS_END])[0] + len(keys)
    path.write_bytes(data[:16] + struct.pack("<Q", count) + b"".join(keys) + data[_COUNTS_END:])
    return path


def _key(name: bytes, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name + value


def _filler(length: int) -> bytes:
    return _key(b"test.fill", struct.pack("<IQ", 8, length) + b"-" * length)


def _imported(model_file: Path, pooling: int, folder: Path) -> Package:
    return Library(folder / "models").import_path(pooled(model_file, pooling, folder / "pooled.gguf"), NAME)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """An agent whose model takes the mean of all tokens, for all tests, which leave it idle."""
    folder = tmp_path_factory.mktemp("mean")
    engine = real_engine(_imported(model_file, MEAN, folder), folder / "run", slots=1, batch_tokens=WHOLE_TOKENS)
    async with running_agent(engine, model=NAME) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def by_last(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """An agent whose model takes the last token."""
    folder = tmp_path_factory.mktemp("last")
    package = _imported(model_file, LAST, folder)
    engine = real_engine(package, folder / "run", slots=1, context_tokens=CONTEXT_TOKENS)
    async with running_agent(engine, model=NAME) as running:
        yield running


def _client(running: Running) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)


async def _post(running: Running, path: str = "/v1/embeddings", **body: Any) -> tuple[int, dict[str, Any]]:
    async with running.session.post(f"{running.url}{path}", json={"model": NAME, **body}) as response:
        return response.status, await response.json()


async def test_texts_become_vectors_that_say_what_they_are_about(running: Running) -> None:
    texts = ["The cat sleeps on the sofa.", "A kitten naps on the couch.", "The bank raised its interest rates."]
    async with _client(running) as client:
        made = await client.embeddings.create(model=NAME, input=texts)
        alone = await client.embeddings.create(model=NAME, input=texts[2], dimensions=WIDTH)
        chat = await client.chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": "Which city is the capital of France?"}], temperature=0
        )
    vectors = np.array([each.embedding for each in made.data])
    assert vectors.shape == (3, WIDTH)
    assert [each.index for each in made.data] == [0, 1, 2]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    np.testing.assert_allclose(np.array(alone.data[0].embedding), vectors[2], atol=1e-6)
    assert made.usage.prompt_tokens == made.usage.total_tokens > alone.usage.prompt_tokens > 0
    assert "Paris" in (chat.choices[0].message.content or "")  # it generates as well


async def test_every_form_of_a_text_gives_the_same_vector(running: Running) -> None:
    (_, told) = await _post(running, input="hello world")
    vector = told["data"][0]["embedding"]
    (_, coded) = await _post(running, input=["hello world"], encoding_format="base64")
    stored = np.frombuffer(base64.b64decode(coded["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(stored, vector, atol=1e-6)
    ids = await running.agent.client.text_ids("hello world")
    for given in (ids, [ids]):
        (_, told) = await _post(running, input=given)
        np.testing.assert_allclose(told["data"][0]["embedding"], vector, atol=1e-6)
    assert told["usage"]["prompt_tokens"] == len(ids)


async def test_a_control_token_that_was_typed_stays_text(running: Running) -> None:
    ids = await running.agent.client.text_ids("<|im_end|>")
    assert len(ids) > 1
    (_, typed) = await _post(running, input="<|im_end|>")
    (_, acting) = await _post(running, input=[2])
    assert typed["usage"]["prompt_tokens"] == len(ids)
    assert not np.allclose(typed["data"][0]["embedding"], acting["data"][0]["embedding"], atol=1e-3)


async def test_a_text_is_taken_whole_or_refused(running: Running) -> None:
    """With this pooling all tokens of a text count, so it has to fit one micro-batch."""
    fits, _ = await _post(running, input=[5] * WHOLE_TOKENS)
    status, told = await _post(running, input=["a", "word " * 80])
    assert (fits, status) == (200, 400)
    assert (told["error"]["code"], told["error"]["param"]) == ("context_length_exceeded", "input")
    assert f"{WHOLE_TOKENS} tokens" in told["error"]["message"]
    status, told = await _post(running, input=[[5]] * 50)
    assert (status, len(told["data"])) == (200, 50)


_REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"input": ""}, 400, "input"),
    ({"input": []}, 400, "input"),
    ({"input": [""]}, 400, "input[0]"),
    ({"input": [49152]}, 400, "input"),
    ({"input": [-1]}, 400, "input[0]"),
    ({"input": "a", "dimensions": 64}, 400, "dimensions"),
    ({"input": "a", "encoding_format": "int8"}, 400, "encoding_format"),
    ({"input": "a", "model": f"{NAME}:adapter"}, 404, "model"),
    ({"input": "a", "model": "other"}, 404, "model"),
]


async def test_what_cannot_be_embedded_is_refused_with_its_field(running: Running) -> None:
    got = [await _post(running, **body) for body, _, _ in _REFUSED]
    assert [(status, told["error"]["param"]) for status, told in got] == [each[1:] for each in _REFUSED]
    assert (await _post(running, input="a"))[0] == 200


async def test_who_leaves_gives_the_slot_back_and_others_get_turns(running: Running) -> None:
    many = asyncio.create_task(_post(running, input=[[5] * 60] * 1000))
    await until(lambda: running.agent.admission.busy == 1)
    status, _ = await asyncio.wait_for(_post(running, input="a"), 60)
    assert status == 200
    assert not many.done()  # it was let in between
    many.cancel()
    await until(lambda: idle(running))


async def test_a_list_of_texts_is_finished_whatever_comes_in_between(running: Running) -> None:
    """It was admitted once: a line that has filled up since does not break it off."""
    many = asyncio.create_task(_post(running, input=[[5] * 20] * 12))
    await until(lambda: running.agent.admission.busy == 1)
    others = await asyncio.gather(*(_post(running, input="a") for _ in range(12)))
    assert {status for status, _ in others} == {200, 503}
    status, told = await many
    assert (status, len(told["data"])) == (200, 12)


async def test_a_list_of_texts_is_finished_while_nothing_new_is_taken(running: Running) -> None:
    """The device turns critical in its middle: what was admitted goes on, whoever comes hears when to come back."""
    admission = running.agent.admission
    many = asyncio.create_task(_post(running, input=[[5] * 20] * 12))
    await until(lambda: admission.busy == 1)
    admission.close(lambda: thermal_critical(7))
    status, told = await _post(running, input="a")
    assert (status, told["error"]["code"]) == (503, "thermal_critical")
    assert not many.done()
    status, told = await many
    assert (status, len(told["data"])) == (200, 12)
    admission.open()


async def test_a_list_of_texts_outlives_the_engine_that_it_began_on(by_last: Running) -> None:
    """Where memory does not allow two at a time, there is none for a moment."""
    engine = by_last.agent.parts.engine
    many = asyncio.create_task(_post(by_last, input=[[5] * 20] * 12))
    await until(lambda: by_last.agent.admission.busy == 1)
    await engine.take_step(Step(1, CONTEXT_TOKENS, 0), overlap=False)
    assert not many.done()
    status, told = await many
    assert (status, len(told["data"])) == (200, 12)
    await until(lambda: idle(by_last))


async def test_ollama_clients_get_them_too(running: Running) -> None:
    long = "word " * 80
    async with ollama.AsyncClient(host=running.url) as client:
        made = await client.embed(NAME, ["hello", long])
        older = await client.embeddings(NAME, "hello")
        with pytest.raises(ollama.ResponseError) as caught:
            await client.embed(NAME, long, truncate=False)
        shown = await client.show(NAME)
    assert np.array(made.embeddings).shape == (2, WIDTH)
    assert made.prompt_eval_count is not None
    assert made.prompt_eval_count > WHOLE_TOKENS
    np.testing.assert_allclose(older.embedding, made.embeddings[0], atol=1e-6)
    assert caught.value.status_code == 400
    assert "embedding" in (shown.capabilities or [])


async def test_a_text_that_is_cut_ends_as_every_text_does(by_last: Running) -> None:
    """The vector is read at the end token: without it, a long text would be near no other one."""
    ids = await by_last.agent.client.text_ids(LONG)
    assert (len(ids) > MOST_TOKENS, ids[-1]) == (True, END)
    async with ollama.AsyncClient(host=by_last.url) as client:
        made = await client.embed(NAME, LONG)
    status, told = await _post(by_last, input=[*ids[: MOST_TOKENS - 1], END])
    assert status == 200  # pooling by the last token takes the whole context
    assert made.prompt_eval_count == MOST_TOKENS
    np.testing.assert_allclose(made.embeddings[0], told["data"][0]["embedding"], atol=1e-5)
    status, told = await _post(by_last, input=[5] * (MOST_TOKENS + 1))
    assert (status, told["error"]["code"]) == (400, "context_length_exceeded")
    assert str(MOST_TOKENS) in told["error"]["message"]


async def test_memory_that_is_given_back_in_the_middle_of_a_list_cuts_or_refuses_the_rest(by_last: Running) -> None:
    """What fitted when it came may not fit the engine that serves when its turn has come."""
    engine, texts = by_last.agent.parts.engine, ["a " * 300] * 40
    whole = len(await by_last.agent.client.text_ids(texts[0]))
    refused = asyncio.create_task(_post(by_last, input=texts))
    async with ollama.AsyncClient(host=by_last.url) as client:
        await until(lambda: by_last.agent.admission.busy == 1)
        cut = asyncio.create_task(client.embed(NAME, texts[0]))
        await until(lambda: by_last.agent.admission.queued == 1)
        await engine.take_step(Step(1, SHORT_CONTEXT_TOKENS, 0), overlap=True)
        status, told = await refused
        made = await cut
    assert (status, told["error"]["code"], told["error"]["param"]) == (400, "context_length_exceeded", "input")
    assert f"{SHORT_CONTEXT_TOKENS - 1} tokens" in told["error"]["message"]
    assert np.array(made.embeddings).shape == (1, WIDTH)
    assert made.prompt_eval_count in (SHORT_CONTEXT_TOKENS - 1, whole)  # whole if it was quicker than the step
    await engine.take_step(Step(1, CONTEXT_TOKENS, 0), overlap=True)
    await until(lambda: idle(by_last))


@pytest.mark.parametrize(("pooling", "found"), [(0, None), (1, "mean"), (2, "cls"), (3, "last"), (4, None)])
async def test_the_file_says_how_a_vector_is_made(pooling: int, found: str | None, tmp_path: Path) -> None:
    with write_gguf(tmp_path / "m.gguf", numbers={"{arch}.pooling_type": pooling}).open("rb") as file:
        assert inspect(file.fileno()).pooling == found


async def test_a_way_of_pooling_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", numbers={"{arch}.pooling_type": 9})
    with pytest.raises(ModelCorrupt, match="pooling_type") as refused:
        Library(tmp_path / "models").import_path(path, NAME)
    assert refused.value.param == "llama.pooling_type"
