"""What Ollama's routes answer, streamed and whole, over a scripted engine; and how an answer ends that breaks off."""

from __future__ import annotations

import orjson

from tests.edge.service import fakes
from tests.edge.service.fakes import MODEL, EngineServer, FakeEngine, answer_of, chunk, plays
from tests.edge.service.harness import Running, running_agent
from tests.edge.service.ollama.asking import CHAT, lines_of, post, said


async def test_a_chat_streams_by_default_and_ends_with_its_figures(running: Running, server: EngineServer) -> None:
    lines = await lines_of(running, "/api/chat", CHAT)
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
    status, told = await said(running, "/api/chat", CHAT | {"stream": False})
    assert (status, told["message"]) == (200, {"role": "assistant", "content": "Paris."})
    assert (told["done"], told["done_reason"], told["eval_count"]) == (True, "stop", 6)


async def test_generate_streamed_and_not(running: Running, server: EngineServer) -> None:
    body = {"model": MODEL, "prompt": "hello", "system": "Be brief."}
    lines = await lines_of(running, "/api/generate", body)
    assert [line["response"] for line in lines] == ["Pa", "ris", ".", ""]
    assert "message" not in lines[0]
    _, told = await said(running, "/api/generate", body | {"stream": False})
    assert (told["response"], told["done_reason"]) == ("Paris.", "stop")
    assert [message["role"] for message in server.exchanges[1].body["messages"]] == ["system", "user"]


async def test_a_raw_prompt_reaches_the_engine_as_it_is(running: Running, server: EngineServer) -> None:
    pieces = [fakes.event({"choices": [{"index": 0, "text": "!", "finish_reason": None}]})]
    end = fakes.event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
    server.scripts.append(plays([*pieces, end, fakes.CLOSING, fakes.DONE]))
    body = {"model": MODEL, "prompt": "a<|im_end|>", "raw": True, "stream": False}
    _, told = await said(running, "/api/generate", body)
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
    lines = await lines_of(running, "/api/chat", CHAT | {"tools": tools})
    assert lines[0]["message"]["tool_calls"] == expected
    assert (lines[-1]["done_reason"], len(lines)) == ("stop", 2)
    _, told = await said(running, "/api/chat", CHAT | {"tools": tools, "stream": False})
    assert told["message"] == {"role": "assistant", "content": "", "tool_calls": expected}


async def test_a_call_that_the_limit_cut_is_none(running: Running, server: EngineServer) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a":'}}
    server.scripts.append(plays([chunk({"tool_calls": [call]}), chunk({}, finish="length"), fakes.CLOSING, fakes.DONE]))
    lines = await lines_of(running, "/api/chat", CHAT)
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
    lines = await lines_of(running, "/api/chat", CHAT | {"logprobs": True})
    assert lines[0]["message"]["thinking"] == "hm"
    assert lines[1]["logprobs"] == [{"token": "Pa", "logprob": -0.5, "bytes": [80, 97]}]


async def test_who_asks_for_no_text_hears_that_the_model_is_loaded(running: Running, server: EngineServer) -> None:
    """An empty prompt, no messages, or Open WebUI's way to unload: the engine is not asked."""
    for route, body in (("chat", {}), ("generate", {}), ("generate", {"prompt": "", "keep_alive": 0})):
        status, told = await said(running, f"/api/{route}", {"model": MODEL, **body})
        assert (status, told["done"], told["done_reason"]) == (200, True, "load")
    assert (await said(running, "/api/generate", {"model": "gpt-4o"}))[0] == 404
    assert not server.exchanges


async def test_names_with_the_default_tag_are_the_model(running: Running) -> None:
    """Open WebUI adds `:latest` to every name without a tag."""
    status, told = await said(running, "/api/chat", CHAT | {"model": f"{MODEL}:latest", "stream": False})
    assert (status, told["model"]) == (200, f"{MODEL}:latest")


async def test_a_break_after_content_is_one_error_line_and_no_end(running: Running, server: EngineServer) -> None:
    """SSE-05 kind"""
    server.scripts.append(plays(answer_of("Pa", "ris")[:5], then="cut"))
    async with post(running, "/api/chat", CHAT) as response:
        lines = [orjson.loads(line) for line in (await response.read()).splitlines()]
    assert [line["message"]["content"] for line in lines[:-1]] == ["Pa", "ris"]
    assert isinstance(lines[-1]["error"], str)
    assert not any(line.get("done") for line in lines)


async def test_a_break_before_content_is_a_status(running: Running, server: EngineServer) -> None:
    server.scripts.append(plays([fakes.OPENING], then="cut"))
    status, told = await said(running, "/api/chat", CHAT)
    assert status == 502
    assert isinstance(told["error"], str)


async def test_silence_is_filled_with_empty_pieces(engine: FakeEngine) -> None:
    async with running_agent(engine, keepalive_s=0.05) as running:
        engine.server.scripts.append(plays(answer_of("Pa"), gap_s=0.1))
        lines = await lines_of(running, "/api/chat", CHAT)
    texts = [line["message"]["content"] for line in lines]
    assert texts.count("") > 1
    assert "".join(texts) == "Pa"
    assert [line["done"] for line in lines].count(True) == 1
