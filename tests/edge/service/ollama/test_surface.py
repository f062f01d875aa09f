"""Ollama's routes over a scripted engine: shapes of answers and errors, and the guarantees of every other route."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from edge.runtime.port import EngineState
from shared import keys
from shared.fleet import ThermalLevel
from shared.http.names import OUTPUT_CAP_HEADER
from tests.edge.service import fakes
from tests.edge.service.fakes import MODEL, EngineServer, FakeEngine, answer_of, chunk, plays, says
from tests.edge.service.harness import Running, idle, running_agent, until
from tests.edge.service.thermal.test_sensors import zone

HELLO = [{"role": "user", "content": "hello"}]
CHAT: dict[str, Any] = {"model": MODEL, "messages": HELLO}


def _post(running: Running, route: str, body: Any = None, **options: Any) -> Any:
    return running.session.post(f"{running.url}{route}", json=body, **options)


async def _said(running: Running, route: str, body: Any) -> tuple[int, Any]:
    async with _post(running, route, body) as response:
        return response.status, orjson.loads(await response.read())


async def _lines(running: Running, route: str, body: Any) -> list[Any]:
    async with _post(running, route, body) as response:
        assert response.status == 200
        assert response.content_type == "application/x-ndjson"
        return [orjson.loads(line) for line in (await response.read()).splitlines()]


async def test_a_chat_streams_by_default_and_ends_with_its_figures(running: Running, server: EngineServer) -> None:
    lines = await _lines(running, "/api/chat", CHAT)
    assert [line["message"] for line in lines[:-1]] == [
        {"role": "assistant", "content": text} for text in ("Pa", "ris", ".")
    ]
    assert [line["done"] for line in lines] == [False, False, False, True]
    assert all(line["model"] == MODEL and line["created_at"].endswith("Z") for line in lines)
    end = lines[-1]
    assert (end["message"], end["done_reason"]) == ({"role": "assistant", "content": ""}, "stop")
    assert (end["prompt_eval_count"], end["eval_count"]) == (40, 6)
    assert (end["prompt_eval_duration"], end["eval_duration"]) == (100_000_000, 50_000_000)
    assert end["total_duration"] >= end["prompt_eval_duration"] + end["eval_duration"]
    asked = server.exchanges[0].body
    assert (asked["temperature"], asked["top_k"], asked["top_p"]) == (0.8, 40, 0.9)


async def test_a_whole_chat_is_one_object(running: Running) -> None:
    status, told = await _said(running, "/api/chat", CHAT | {"stream": False})
    assert (status, told["message"]) == (200, {"role": "assistant", "content": "Paris."})
    assert (told["done"], told["done_reason"], told["eval_count"]) == (True, "stop", 6)


async def test_generate_streamed_and_not(running: Running, server: EngineServer) -> None:
    body = {"model": MODEL, "prompt": "hello", "system": "Be brief."}
    lines = await _lines(running, "/api/generate", body)
    assert [line["response"] for line in lines] == ["Pa", "ris", ".", ""]
    assert "message" not in lines[0]
    _, told = await _said(running, "/api/generate", body | {"stream": False})
    assert (told["response"], told["done_reason"]) == ("Paris.", "stop")
    assert [message["role"] for message in server.exchanges[1].body["messages"]] == ["system", "user"]


async def test_a_raw_prompt_reaches_the_engine_as_it_is(running: Running, server: EngineServer) -> None:
    pieces = [fakes.event({"choices": [{"index": 0, "text": "!", "finish_reason": None}]})]
    end = fakes.event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
    server.scripts.append(plays([*pieces, end, fakes.CLOSING, fakes.DONE]))
    body = {"model": MODEL, "prompt": "a<|im_end|>", "raw": True, "stream": False}
    _, told = await _said(running, "/api/generate", body)
    assert (told["response"], told["done_reason"]) == ("!", "length")
    assert server.exchanges[0].body["prompt"] == "a<|im_end|>"


async def test_tool_calls_go_out_whole_with_arguments_as_an_object(running: Running, server: EngineServer) -> None:
    def delta(index: int, **function: str) -> bytes:
        head = {"id": f"c{index}", "type": "function"} if "name" in function else {}
        return chunk({"tool_calls": [{"index": index, "function": function, **head}]})

    script = [
        fakes.OPENING,
        delta(0, name="add", arguments='{"a":'),
        delta(0, arguments="1}"),
        delta(1, name="now", arguments=""),
        chunk({}, finish="tool_calls"),
        fakes.CLOSING,
        fakes.DONE,
    ]
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("add", "now")]
    expected = [
        {"id": "c0", "function": {"index": 0, "name": "add", "arguments": {"a": 1}}},
        {"id": "c1", "function": {"index": 1, "name": "now", "arguments": {}}},
    ]
    server.scripts.extend([plays(script), plays(script)])
    lines = await _lines(running, "/api/chat", CHAT | {"tools": tools})
    assert lines[0]["message"]["tool_calls"] == expected
    assert (lines[-1]["done_reason"], len(lines)) == ("stop", 2)
    _, told = await _said(running, "/api/chat", CHAT | {"tools": tools, "stream": False})
    assert told["message"] == {"role": "assistant", "content": "", "tool_calls": expected}


async def test_a_call_that_the_limit_cut_is_none(running: Running, server: EngineServer) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a":'}}
    server.scripts.append(plays([chunk({"tool_calls": [call]}), chunk({}, finish="length"), fakes.CLOSING, fakes.DONE]))
    lines = await _lines(running, "/api/chat", CHAT)
    assert [line.get("done_reason") for line in lines] == ["length"]
    assert "tool_calls" not in lines[0]["message"]


async def test_log_probabilities_and_thoughts(running: Running, server: EngineServer) -> None:
    entry = {"token": "Pa", "logprob": -0.5, "bytes": [80, 97], "top_logprobs": []}
    script = [
        chunk({"reasoning_content": "hm"}),
        fakes.event({"choices": [{"index": 0, "delta": {"content": "Pa"}, "logprobs": {"content": [entry]}}]}),
        chunk({}, finish="stop"),
        fakes.CLOSING,
        fakes.DONE,
    ]
    server.scripts.append(plays(script))
    lines = await _lines(running, "/api/chat", CHAT | {"logprobs": True})
    assert lines[0]["message"]["thinking"] == "hm"
    assert lines[1]["logprobs"] == [{"token": "Pa", "logprob": -0.5, "bytes": [80, 97]}]


async def test_who_asks_for_no_text_hears_that_the_model_is_loaded(running: Running, server: EngineServer) -> None:
    """An empty prompt, no messages, or Open WebUI's way to unload: the engine is not asked."""
    for route, body in (("chat", {}), ("generate", {}), ("generate", {"prompt": "", "keep_alive": 0})):
        status, told = await _said(running, f"/api/{route}", {"model": MODEL, **body})
        assert (status, told["done"], told["done_reason"]) == (200, True, "load")
    assert (await _said(running, "/api/generate", {"model": "gpt-4o"}))[0] == 404
    assert not server.exchanges


@pytest.mark.parametrize("route", ["chat", "generate", "show", "embed", "embeddings"])
async def test_an_unknown_model_is_told_in_ollamas_words(running: Running, route: str) -> None:
    body = {"model": "gpt-4o:latest", "messages": HELLO, "prompt": "hello", "input": "hello"}
    for stream in (True, False):
        status, told = await _said(running, f"/api/{route}", body | {"stream": stream})
        assert (status, told["error"]) == (404, "model 'gpt-4o:latest' not found")
    status, told = await _said(running, f"/api/{route}", body | {"model": f"{MODEL}:no-such-adapter"})
    assert (status, told["code"]) == (404, "model_not_found")


async def test_names_with_the_default_tag_are_the_model(running: Running) -> None:
    """Open WebUI adds `:latest` to every name without a tag."""
    status, told = await _said(running, "/api/chat", CHAT | {"model": f"{MODEL}:latest", "stream": False})
    assert (status, told["model"]) == (200, f"{MODEL}:latest")


async def test_models_are_listed_shown_and_running(running: Running, engine: FakeEngine) -> None:
    async with running.session.get(f"{running.url}/api/tags") as response:
        (model,) = (await response.json())["models"]
    assert (model["name"], model["model"], model["digest"]) == (f"{MODEL}:latest", f"{MODEL}:latest", "0" * 64)
    assert model["details"]["family"] == "llama"
    status, shown = await _said(running, "/api/show", {"model": model["name"]})
    assert (status, shown["capabilities"]) == (200, ["completion", "tools"])
    assert shown["model_info"]["llama.context_length"] == 2048
    assert (await _said(running, "/api/show", {"name": MODEL}))[0] == 200
    assert (await _said(running, "/api/show", {}))[1]["param"] == "model"
    async with running.session.get(f"{running.url}/api/ps") as response:
        assert [each["name"] for each in (await response.json())["models"]] == [f"{MODEL}:latest"]
    engine.set(EngineState.RESTARTING)
    async with running.session.get(f"{running.url}/api/ps") as response:
        assert (await response.json())["models"] == []


async def test_front_ends_know_the_api(running: Running) -> None:
    async with running.session.get(running.url) as response:
        assert await response.text() == "Ollama is running"
    async with running.session.head(running.url) as response:
        assert response.status == 200
    async with running.session.get(f"{running.url}/api/version") as response:
        version = (await response.json())["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4)  # the least that Copilot Chat takes


@pytest.mark.parametrize("route", ["embed", "embeddings"])
async def test_embeddings_are_refused_clearly(running: Running, route: str) -> None:
    status, told = await _said(running, f"/api/{route}", {"model": MODEL, "input": ["x"], "prompt": "x"})
    assert (status, told["error"]) == (400, "This model does not support embeddings.")


async def test_models_are_not_managed_over_http(running: Running) -> None:
    for method, route in (("POST", "pull"), ("DELETE", "delete"), ("POST", "create"), ("HEAD", "blobs/sha256:0")):
        async with running.session.request(method, f"{running.url}/api/{route}", json={"model": MODEL}) as response:
            assert response.status == 403
            if method != "HEAD":
                assert "isthmus pull" in (await response.json())["error"]


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "empty"),
        (b"{", 400, "not valid JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b'{"model":"m","model":"m"}', 400, "repeats a key"),
        (b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}', 400, "not valid JSON"),
        (b'{"model":"m","messages":[{"role":"user","content":"a\\u0000b"}]}', 400, "NUL"),
        (b'{"model":"m","prompt":' + b"[" * 100 + b"]" * 100 + b"}", 400, "nested deeper"),
        (b'{"model":"m","options":{"temperature":1e999}}', 400, "JSON"),
        (b"\xff\xfe", 400, "UTF-8"),
        (b'{"model":"' + b"m" * 300 + b'","prompt":"x"}', 400, "model"),
        (b'{"prompt":"x"}', 400, "model: A required field is missing."),
    ],
)
@pytest.mark.parametrize("route", ["chat", "generate"])
async def test_malformed_bodies(running: Running, route: str, body: bytes, status: int, error: str) -> None:
    async with running.session.post(f"{running.url}/api/{route}", data=body) as response:
        told = await response.json()
        assert response.status == status
        assert error in told["error"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"temperature": 3}, "options.temperature: "),
        ({"top_p": 0}, "options.top_p: "),
        ({"top_k": 10**9}, "options.top_k: "),
        ({"repeat_penalty": 0}, "options.repeat_penalty: "),
        ({"presence_penalty": 5}, "options.presence_penalty: "),
        ({"stop": [""]}, "options.stop"),
        ({"mirostat": 2}, "options.mirostat: mirostat is not supported"),
        ({"typical_p": 0.5}, "options.typical_p: "),
        ({"num_ctx": 10**30}, "options.num_ctx: "),
    ],
)
async def test_faults_name_the_field_in_ollamas_words(running: Running, options: dict[str, Any], told: str) -> None:
    for route in ("chat", "generate"):
        status, said = await _said(running, f"/api/{route}", CHAT | {"prompt": "hello", "options": options})
        assert status == 400
        assert told.removesuffix(" ") in said["error"]
        assert said["param"].startswith("options.")


async def test_a_limit_above_the_context_is_no_demand_for_room(running: Running, server: EngineServer) -> None:
    """Front ends set num_predict far above what any context holds."""
    status, _ = await _said(running, "/api/chat", CHAT | {"options": {"num_predict": 10**6}, "stream": False})
    assert status == 200
    assert server.exchanges[0].body["max_tokens"] == 10**6


async def test_a_prompt_that_does_not_fit_is_never_cut(running: Running, server: EngineServer) -> None:
    """CX-01: Ollama drops the beginning of a long conversation without a word."""
    error = {"type": "exceed_context_size_error", "n_prompt_tokens": 3000, "n_ctx": 2048, "message": "too long"}
    server.default = says(400, error)
    for route, body, param in (("chat", CHAT, "messages"), ("generate", {"model": MODEL, "prompt": "x"}, "prompt")):
        status, told = await _said(running, f"/api/{route}", body | {"truncate": True})
        assert (status, told["code"], told["param"]) == (400, "context_length_exceeded", param)
        assert "3000" in told["error"]
        assert "2048" in told["error"]


async def test_bodies_need_no_content_type_unless_a_page_sends_them(running: Running) -> None:
    """curl -d says it is a form; a page in a browser must ask before it may send JSON to another origin."""
    url, raw = f"{running.url}/api/chat", orjson.dumps(CHAT | {"stream": False})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    async with running.session.post(url, data=raw, headers=form) as response:
        assert response.status == 200
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        page = {"Content-Type": kind, "Origin": "http://localhost:3000"}
        async with running.session.post(url, data=raw, headers=page) as response:
            assert response.status == 415
            assert isinstance((await response.json())["error"], str)
    async with running.session.post(f"{running.url}/v1/chat/completions", data=raw, headers=form) as response:
        assert response.status == 415


@pytest.mark.parametrize("stream", [True, False])
async def test_a_page_of_this_device_may_read_the_answer(running: Running, stream: bool) -> None:
    """What a front end in a browser does: ask first, then send JSON."""
    url, page = f"{running.url}/api/chat", {"Origin": "http://localhost:3000"}
    wish = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type, authorization"}
    async with running.session.options(url, headers=page | wish) as response:
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Origin"] == page["Origin"]
        assert response.headers["Access-Control-Allow-Headers"] == "content-type, authorization"
        assert "POST" in response.headers["Access-Control-Allow-Methods"]
    async with running.session.post(url, json=CHAT | {"stream": stream}, headers=page) as response:
        assert response.status == 200
        assert response.headers["Access-Control-Allow-Origin"] == page["Origin"]
        await response.read()
    async with running.session.post(url, json={}, headers=page) as response:  # the page sees why, too
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (400, page["Origin"])


@pytest.mark.parametrize(
    "origin", ["https://elsewhere.example", "http://localhost.elsewhere.example", "null", "http://["]
)
async def test_a_page_elsewhere_is_refused(running: Running, server: EngineServer, origin: str) -> None:
    page = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    for method in ("POST", "OPTIONS"):
        async with running.session.request(method, f"{running.url}/api/chat", json=CHAT, headers=page) as response:
            assert response.status == 403
            assert "Access-Control-Allow-Origin" not in response.headers
    assert not server.exchanges


async def test_pages_are_no_matter_of_openais_api(running: Running) -> None:
    async with running.chat() as response:
        assert "Access-Control-Allow-Origin" not in response.headers
    page = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    async with running.session.options(f"{running.url}/v1/chat/completions", headers=page) as response:
        assert response.status == 404


async def test_a_page_needs_the_key_as_well(engine: FakeEngine) -> None:
    known = [{"name": "user", "sha256": keys.hashed("isk-user")}]
    async with running_agent(engine, keys=known) as running:
        page = {"Origin": "http://127.0.0.1:3000"}
        for headers, status in ((page, 401), (page | {"Authorization": "Bearer isk-user"}, 200)):
            async with _post(running, "/api/chat", CHAT, headers=headers) as response:
                assert response.status == status


async def test_keys_guard_these_routes_too(engine: FakeEngine) -> None:
    known = [
        {"name": "user", "sha256": keys.hashed("isk-user")},
        {"name": "reporter", "sha256": keys.hashed("isk-reporter"), "scopes": ["fleet:report"]},
    ]
    async with running_agent(engine, keys=known) as running:
        for key, status in ((None, 401), ("isk-nobody", 401), ("isk-reporter", 403), ("isk-user", 200)):
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            async with _post(running, "/api/chat", CHAT, headers=headers) as response:
                assert response.status == status
                if status != 200:
                    assert isinstance((await response.json())["error"], str)
            for route in ("/", "/api/tags", "/api/version", "/api/ps"):
                async with running.session.get(running.url + route, headers=headers) as response:
                    assert response.status == status


async def test_the_queue_is_bounded_here_as_well(running: Running, server: EngineServer) -> None:
    server.default = plays([fakes.OPENING], then="hang")
    waiting = [asyncio.create_task(_said(running, "/api/chat", CHAT)) for _ in range(5)]
    await until(lambda: running.agent.admission.queued == 4)
    status, told = await _said(running, "/api/generate", {"model": MODEL, "prompt": "x"})
    assert (status, told["code"]) == (503, "queue_full")
    for task in waiting:
        task.cancel()
    await until(lambda: idle(running))
    assert 'isthmus_edge_requests_total{outcome="queue_full",route="/api/generate"} 1.0' in await running.metrics()


async def test_heat_caps_and_refuses_here_as_well(engine: FakeEngine, server: EngineServer, tmp_path: Path) -> None:
    zone(tmp_path, "87000")
    thermal = {
        "roots": [str(tmp_path)],
        "dwell_s": 0.2,
        "interval_s": 0.05,
        "levels": {"hot": {"output_cap_tokens": 64}},
    }
    async with running_agent(engine, thermal=thermal) as running:
        await until(lambda: running.agent.thermal.level is ThermalLevel.HOT)
        async with _post(running, "/api/chat", CHAT) as response:
            assert response.headers[OUTPUT_CAP_HEADER] == "64; reason=thermal"
            await response.read()
        assert server.exchanges[-1].body["max_tokens"] == 64
        zone(tmp_path, "99000")
        await until(lambda: running.agent.thermal.level is ThermalLevel.CRITICAL)
        async with _post(running, "/api/generate", {"model": MODEL, "prompt": "x"}) as response:
            assert (response.status, (await response.json())["code"]) == (503, "thermal_critical")
            assert int(response.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("stream", [True, False])
async def test_who_leaves_frees_the_slot(running: Running, server: EngineServer, stream: bool) -> None:
    """SSE-03"""
    server.scripts.append(plays([*answer_of("a", "b")[:4]], then="hang"))
    request = asyncio.create_task(_post(running, "/api/chat", CHAT | {"stream": stream}).__aenter__())
    await until(lambda: running.agent.admission.busy == 1 and bool(server.exchanges) and server.exchanges[0].sent == 4)
    if stream:
        (await request).close()
    else:
        request.cancel()
    await until(lambda: idle(running) and server.exchanges[0].left)
    assert (await _said(running, "/api/chat", CHAT | {"stream": False}))[0] == 200


async def test_a_break_after_content_is_one_error_line_and_no_end(running: Running, server: EngineServer) -> None:
    """SSE-05 kind"""
    server.scripts.append(plays(answer_of("Pa", "ris")[:5], then="cut"))
    async with _post(running, "/api/chat", CHAT) as response:
        lines = [orjson.loads(line) for line in (await response.read()).splitlines()]
    assert [line["message"]["content"] for line in lines[:-1]] == ["Pa", "ris"]
    assert isinstance(lines[-1]["error"], str)
    assert not any(line.get("done") for line in lines)


async def test_a_break_before_content_is_a_status(running: Running, server: EngineServer) -> None:
    server.scripts.append(plays([fakes.OPENING], then="cut"))
    status, told = await _said(running, "/api/chat", CHAT)
    assert status == 502
    assert isinstance(told["error"], str)


async def test_silence_is_filled_with_empty_pieces(engine: FakeEngine) -> None:
    async with running_agent(engine, keepalive_s=0.05) as running:
        engine.server.scripts.append(plays(answer_of("Pa"), gap_s=0.1))
        lines = await _lines(running, "/api/chat", CHAT)
    texts = [line["message"]["content"] for line in lines]
    assert texts.count("") > 1
    assert "".join(texts) == "Pa"
    assert [line["done"] for line in lines].count(True) == 1


async def test_unknown_routes_are_told_in_the_shape_of_their_api(running: Running) -> None:
    async with running.session.get(f"{running.url}/api/nothing") as response:
        assert (response.status, (await response.json())["error"]) == (404, "There is no such route.")
    async with running.session.get(f"{running.url}/v1/nothing") as response:
        assert (await response.json())["error"]["code"] == "unknown_route"


async def test_no_client_can_make_the_labels_of_metrics(running: Running) -> None:
    """MT-01"""
    for number in range(5):
        await _said(running, "/api/chat", CHAT | {"model": f"model-{number}"})
    assert "model-3" not in await running.metrics()
