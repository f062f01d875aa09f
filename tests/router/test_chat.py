"""`isthmus chat` against a live router: streams, says where and why, and tells a refusal as one line."""

from __future__ import annotations

import asyncio
import io

import orjson
import pytest
from typer import BadParameter

from router import chat_command
from router.chat import Chat
from router.chat_console import Terminal
from router.console import RouterClient
from shared.errors import BackendUnreachable, InvalidRequest, StreamBroken
from shared.testing import answers
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, RunningRouter, StartRouter


def _terminal(router: RunningRouter, *, as_json: bool = False) -> tuple[Chat, Terminal]:
    chat = Chat(router.url, None, None, MODEL, max_tokens=64, temperature=0.5)
    return chat, Terminal(chat, RouterClient(router.url, None), as_json=as_json)


async def _typed(terminal: Terminal, text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return await asyncio.to_thread(terminal.run)


async def test_a_conversation_streams_and_says_why(
    start_router: StartRouter, edge: Upstream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    router = await start_router()
    await router.report(edge)
    chat, terminal = _terminal(router)
    lines = f"/route edge\nHello\n/privacy secret\n{PERSONAL_TEXT}\n/why\n/new\n/route mars\n/exit\nnever said\n"
    assert await _typed(terminal, lines, monkeypatch) == 1  # /route mars is no route
    said = capsys.readouterr()
    assert said.out == "Paris.\nParis.\n"
    assert "edge · edge-1 · secret · privacy_requires_edge" in said.err
    assert "It must stay on the edge." in said.err
    assert [exchange.headers.get("x-isthmus-route") for exchange in edge.exchanges] == [None, None]
    assert "/route takes one of the values below" in said.err
    assert len(orjson.loads(edge.exchanges[1].body)["messages"]) == 3
    assert all(orjson.loads(each.body)["max_tokens"] == 64 for each in edge.exchanges)
    assert chat.turns == []


async def test_a_refusal_is_one_line_and_is_forgotten(
    start_router: StartRouter, edge: Upstream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    router = await start_router()
    await router.report(edge)
    chat, terminal = _terminal(router)
    assert await _typed(terminal, f"/route cloud\n{PERSONAL_TEXT}\n/route auto\nHello\n", monkeypatch) == 1
    said = capsys.readouterr()
    assert "error: The router answered 503" in said.err
    assert "privacy_unavailable" in said.err
    assert "4111" not in said.err
    assert [turn["role"] for turn in chat.turns] == ["user", "assistant"]


async def test_json_is_one_object_a_turn(
    start_router: StartRouter, edge: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    router = await start_router()
    await router.report(edge)
    _, terminal = _terminal(router, as_json=True)
    assert await asyncio.to_thread(terminal.once, "Hello") == 0
    told = orjson.loads(next(line for line in capsys.readouterr().out.splitlines() if line.startswith("{")))
    assert (told["text"], told["tier"], told["class"], told["error"]) == ("Paris.", "edge", "public", None)


async def test_an_answer_cannot_steer_the_terminal(
    start_router: StartRouter, edge: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    router = await start_router()
    await router.report(edge)
    edge.script(answers.stream("a\x1b]0;owned\x07", "\x9b2J杭州\n"))
    _, terminal = _terminal(router)
    assert await asyncio.to_thread(terminal.once, "Hello") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x9b" not in out
    assert "杭州" in out


async def test_an_answer_that_breaks_off_is_no_answer(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    await router.report(edge)
    edge.script(answers.broken_stream("Pa"))
    chat = Chat(router.url, None, None, MODEL, max_tokens=64, temperature=0.5)
    with pytest.raises(StreamBroken):
        await asyncio.to_thread(chat.say, "Hello", lambda _: None)
    assert chat.turns == []


def test_who_cannot_be_reached_is_named() -> None:
    with pytest.raises(BackendUnreachable, match="isthmus up"):
        Chat("http://127.0.0.1:1", None, None, MODEL, max_tokens=64, temperature=0.5).say("Hello", lambda _: None)
    with pytest.raises(InvalidRequest):
        Chat("file:///etc/passwd", None, None, MODEL, max_tokens=64, temperature=0.5)


@pytest.mark.parametrize(
    ("line", "told"), [("/nonsense", "/nonsense is no command"), ("/privacy", "/privacy takes one of the values below")]
)
async def test_a_command_that_is_none_is_named(
    line: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = Chat("http://127.0.0.1:1", None, None, MODEL, max_tokens=64, temperature=0.5)
    terminal = Terminal(chat, RouterClient("http://127.0.0.1:1", None), as_json=False)
    assert await _typed(terminal, f"{line}\n", monkeypatch) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_question_is_a_usage_error(text: str) -> None:
    with pytest.raises(BadParameter, match="empty"):
        chat_command.chat(text=text, url="http://127.0.0.1:1")
