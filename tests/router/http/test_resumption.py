"""A broken stream goes on at another backend with the same weights: one id, nothing twice, nothing lost, no leak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.fleet import ServedModel
from shared.openai.sse import DONE
from shared.testing import answers
from shared.testing.answers import MODEL, Answer, End, Write
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, PUBLIC_TEXT, RunningRouter, StartRouter, eventually

RESUME = "rules: [{name: resume, act: {resume: true}}]\n"
ALL = ("continuation", "tools", "structured_output", "logprobs")
SAME, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def _model(digest: str | None = SAME, *features: str) -> tuple[ServedModel, ...]:
    return (ServedModel(model_id=MODEL, context_tokens=2048, digest=digest, features=features or ALL),)


def _cloud(cloud: Upstream) -> dict[str, Any]:
    return {
        "id": "cloud-1",
        "url": cloud.url,
        "models": [{"id": MODEL, "digest": SAME, "context_tokens": 4096, "features": ALL}],
    }


async def _router(start_router: StartRouter, folder: Path, **settings: Any) -> RunningRouter:
    path = folder / "policy.yaml"
    path.write_text(RESUME)
    return await start_router(policy={"file": path, **settings.pop("policy", {})}, **settings)


def _relabelled(answer: Answer) -> Answer:
    """The same answer under another id, as another backend gives it."""
    writes = [Write(w.data.replace(b"chatcmpl-scripted", b"chatcmpl-other"), tokens=w.tokens) for w in answer.writes]
    return Answer(headers=answer.headers, writes=tuple(writes))


def _read(received: bytes) -> tuple[str, set[str], list[dict[str, Any]]]:
    """Text, ids and chunks of a stream."""
    data = [part[6:] for part in received.split(b"\n\n") if part.startswith(b"data: {")]
    chunks = [orjson.loads(each) for each in data]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", [])]
    return "".join(d.get("content") or "" for d in deltas), {c.get("id") for c in chunks}, chunks


@pytest.mark.parametrize("end", [End.RESET, End.CUT, End.CLEAN])
async def test_a_broken_stream_goes_on_elsewhere(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, end: End
) -> None:
    async with Upstream() as second:
        router = await _router(start_router, tmp_path)
        await router.report(edge, "edge-1", models=_model(), decode_tokens_per_s=100.0, prefill_tokens_per_s=900.0)
        await router.report(second, "edge-2", models=_model(), decode_tokens_per_s=90.0, prefill_tokens_per_s=800.0)
        edge.script(answers.broken_stream("Paris ", "is ", end=end))
        second.script(_relabelled(answers.stream("the ", "capital.")))
        asked = {"stream": True, "max_tokens": 20, "stream_options": {"include_usage": True}}
        async with router.ask(**asked) as response:
            received = await response.read()
            assert response.headers["x-isthmus-resume"] == "best_effort"
        text, ids, chunks = _read(received)
        assert text == "Paris is the capital." and ids == {"chatcmpl-scripted"}
        assert received.endswith(DONE) and received.count(DONE) == 1 and b"error" not in received
        assert sum("role" in choice["delta"] for chunk in chunks for choice in chunk["choices"]) == 1
        assert b": resumed on edge-2, best_effort\n\n" in received
        assert chunks[-1]["usage"]["completion_tokens"] == 4
        sent = orjson.loads(second.exchanges[0].body)
        assert sent["messages"][-1] == {"role": "assistant", "content": "Paris is "}
        assert sent["messages"][0] == {"role": "user", "content": PUBLIC_TEXT}
        assert sent["continue_final_message"] is True and sent["max_tokens"] == 18
        [record] = await router.records(1)
        assert [(a["backend"], a["outcome"]) for a in record["attempts"]] == [("edge-1", "broken"), ("edge-2", "ok")]
        assert record["resumed"] == 1 and record["outcome"] == "ok"
        await eventually(lambda: router.in_flight() == 0)


async def test_it_is_off_without_a_rule(start_router: StartRouter, edge: Upstream) -> None:
    """FO-01."""
    async with Upstream() as second:
        router = await start_router()
        await router.report(edge, "edge-1", models=_model())
        await router.report(second, "edge-2", models=_model())
        edge.script(answers.broken_stream("Paris"))
        second.script(answers.broken_stream("Paris"))
        async with router.ask(stream=True) as response:
            assert b"stream_broken" in await response.read()
            assert "x-isthmus-resume" not in response.headers
        assert len(edge.exchanges) + len(second.exchanges) == 1


@pytest.mark.parametrize("digest", [OTHER, None])
async def test_other_weights_do_not_go_on(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, digest: str | None
) -> None:
    async with Upstream() as second:
        router = await _router(start_router, tmp_path)
        await router.report(edge, "edge-1", models=_model(), decode_tokens_per_s=100.0, prefill_tokens_per_s=900.0)
        await router.report(second, "edge-2", models=_model(digest), decode_tokens_per_s=9.0, prefill_tokens_per_s=9.0)
        edge.script(answers.broken_stream("Paris"))
        async with router.ask(stream=True) as response:
            assert b"stream_broken" in await response.read()
        assert not second.exchanges


async def test_what_must_stay_on_the_edge_does_not_go_on_in_the_cloud(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream
) -> None:
    router = await _router(start_router, tmp_path, clouds=[_cloud(cloud)])
    await router.report(edge, models=_model())
    edge.script(answers.broken_stream("It is valid"))
    async with router.ask(PERSONAL_TEXT, stream=True) as response:
        assert b"stream_broken" in await response.read()
    assert not cloud.exchanges


async def test_an_answer_that_became_personal_does_not_leave(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream
) -> None:
    """The prompt is public; what the model wrote is not: the new body is scanned as a whole."""
    router = await _router(start_router, tmp_path, clouds=[_cloud(cloud)])
    await router.report(edge, models=_model())
    edge.script(answers.broken_stream("The card is 4111 1111 ", "1111 1111"))
    async with router.ask(stream=True) as response:
        assert b"stream_broken" in await response.read()
    assert not cloud.exchanges


async def test_a_public_answer_goes_on_in_the_cloud(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream
) -> None:
    router = await _router(start_router, tmp_path, clouds=[_cloud(cloud)])
    await router.report(edge, models=_model())
    edge.script(answers.broken_stream("Paris"))
    cloud.script(answers.stream(" it is"))
    async with router.ask(stream=True) as response:
        text, _, _ = _read(await response.read())
    assert text == "Paris it is"


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"logprobs": True},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
    ],
)
async def test_what_is_more_than_text_ends_where_it_broke(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, fields: dict[str, Any]
) -> None:
    async with Upstream() as second:
        router = await _router(start_router, tmp_path)
        await router.report(edge, "edge-1", models=_model())
        await router.report(second, "edge-2", models=_model())
        edge.script(answers.broken_stream("Paris"))
        second.script(answers.broken_stream("Paris"))
        async with router.ask(stream=True, **fields) as response:
            assert b"stream_broken" in await response.read()
        assert len(edge.exchanges) + len(second.exchanges) == 1


@pytest.mark.parametrize(
    "fields,features,label",
    [
        ({"temperature": 0}, ("deterministic", "continuation"), "exact"),
        ({"temperature": 0}, ("continuation",), "best_effort"),
        ({"temperature": 0.5}, ("deterministic", "continuation"), "best_effort"),
        ({"temperature": 0, "frequency_penalty": 1}, ("deterministic", "continuation"), "best_effort"),
    ],
)
async def test_the_label_says_what_can_be_promised(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, fields: dict[str, Any], features: Any, label: str
) -> None:
    router = await _router(start_router, tmp_path)
    await router.report(edge, models=_model(SAME, *features))
    async with router.ask(stream=True, **fields) as response:
        await response.read()
        assert response.headers["x-isthmus-resume"] == label


async def test_what_was_promised_exact_goes_on_nowhere_else(
    start_router: StartRouter, tmp_path: Path, edge: Upstream
) -> None:
    async with Upstream() as second:
        router = await _router(start_router, tmp_path)
        exact = _model(SAME, "deterministic", "continuation")
        await router.report(edge, "edge-1", models=exact, decode_tokens_per_s=100.0, prefill_tokens_per_s=900.0)
        loose = _model(SAME, "continuation")
        await router.report(second, "edge-2", models=loose, decode_tokens_per_s=9.0, prefill_tokens_per_s=9.0)
        edge.script(answers.broken_stream("Paris"))
        async with router.ask(stream=True, temperature=0) as response:
            assert b"stream_broken" in await response.read()
        assert not second.exchanges


async def test_a_second_break_goes_on_once_more(start_router: StartRouter, tmp_path: Path, edge: Upstream) -> None:
    async with Upstream() as second, Upstream() as third:
        router = await _router(start_router, tmp_path)
        for n, upstream in enumerate((edge, second, third), start=1):
            rate = {"decode_tokens_per_s": 100.0 / n, "prefill_tokens_per_s": 900.0 / n}
            await router.report(upstream, f"edge-{n}", models=_model(), **rate)
        edge.script(answers.broken_stream("a", "b"))
        second.script(answers.broken_stream("c", end=End.CUT))
        third.script(answers.stream("d"))
        async with router.ask(stream=True) as response:
            text, ids, _ = _read(await response.read())
        assert text == "abcd" and len(ids) == 1
        assert orjson.loads(third.exchanges[0].body)["messages"][-1]["content"] == "abc"
        [record] = await router.records(1)
        assert record["resumed"] == 2


async def test_fo_01_what_a_lost_race_said_is_no_part_of_what_goes_on(
    start_router: StartRouter, tmp_path: Path, edge: Upstream
) -> None:
    """The first opens its stream while the second, asked for its silence, already answers; the second breaks."""
    (tmp_path / "both.yaml").write_text("rules: [{name: both, act: {resume: true, hedge_ms: 50}}]\n")
    async with Upstream() as second, Upstream() as third:
        router = await start_router(policy={"file": tmp_path / "both.yaml"})
        for name, upstream, rate in (("edge-1", edge, 900.0), ("edge-2", second, 800.0), ("edge-3", third, 700.0)):
            await router.report(upstream, name, models=_model(), decode_tokens_per_s=100.0, prefill_tokens_per_s=rate)
        opening = _relabelled(answers.broken_stream(end=End.STALL)).writes[0]
        goes_on = _relabelled(answers.stream("the ", "capital."))
        silent = Answer(headers=answers.EVENT_STREAM, writes=(Write(opening.data, after_s=0.2),), end=End.STALL)
        edge.script(silent, goes_on)
        late = answers.broken_stream("Paris ", "is ", end=End.RESET)
        second.script(
            Answer(headers=late.headers, writes=(Write(b": ok\n\n", after_s=0.4), *late.writes), end=late.end)
        )
        third.script(goes_on)
        async with router.ask(stream=True) as response:
            received = await response.read()
        text, ids, _ = _read(received)
        assert text == "Paris is the capital." and ids == {"chatcmpl-scripted"}
        assert received.endswith(DONE) and b"error" not in received
        await eventually(lambda: router.in_flight() == 0)
