"""`isthmus edge adapters …` as an operator types it: what is registered here, and what a running agent does with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edge import adapter_console
from edge.packages.package import Package
from shared import cli
from shared.errors import InvalidRequest
from shared.openai.envelope import envelope_bytes
from tests.edge.adapter_files import write_adapter
from tests.edge.service.fakes import FACTS, MODEL, FakeEngine, engine_server
from tests.edge.service.harness import Running, running_agent

Isthmus = Callable[..., tuple[int, str, str]]


@pytest.fixture
def isthmus(
    installed_model: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Isthmus:
    """Run `isthmus edge adapters …` in this process, in a home of its own: exit code, output, errors."""
    from importlib.metadata import EntryPoint

    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ISTHMUS__EDGE__MODELS_DIR", str(installed_model.folder.parent.parent.parent))
    monkeypatch.setenv("ISTHMUS__EDGE__PORT", "1")  # nobody listens there
    point = EntryPoint("edge", "edge.cli:app", cli.COMMAND_GROUP)
    monkeypatch.setattr(cli, "_contributed", lambda: {"edge": point})

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["edge", "adapters", *arguments])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        # An agent in this process logs to the same output.
        out = "".join(line for line in captured.out.splitlines(keepends=True) if "component=" not in line)
        return ended.value.code, out, captured.err

    return run


@pytest.fixture
def agent(installed_model: Package, tmp_path: Path) -> Iterator[str]:
    """The URL of an agent over a scripted engine, in a thread of its own: commands run a loop themselves."""
    started, url = threading.Event(), ""
    loop, ended = asyncio.new_event_loop(), asyncio.Event()

    @contextlib.asynccontextmanager
    async def serving() -> AsyncIterator[Running]:
        (tmp_path / "s").mkdir()
        async with engine_server(tmp_path / "s") as server:
            engine = FakeEngine(server, replace(FACTS, digest=installed_model.digest))
            settings = {
                "models_dir": str(installed_model.folder.parent.parent.parent),
                "adapters": {"dir": str(tmp_path / "home" / "adapters")},
            }
            async with running_agent(engine, **settings) as running:
                yield running

    async def serve() -> None:
        nonlocal url
        async with serving() as running:
            url = running.url
            started.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(30)
        yield url
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()


def test_register_list_and_remove_without_an_agent(isthmus: Isthmus, tmp_path: Path) -> None:
    path = write_adapter(tmp_path / "tone.gguf", layers=2)
    code, out, _ = isthmus("register", str(path), "--json")
    assert (code, json.loads(out)["name"]) == (0, f"{MODEL}:tone")
    assert isthmus("register", str(path), "--name", f"{MODEL}:other")[0] == 0
    code, out, _ = isthmus("list", "--json")
    assert [each["name"] for each in json.loads(out)] == [f"{MODEL}:other", f"{MODEL}:tone"]
    assert isthmus("rm", "other")[0] == 0
    code, out, _ = isthmus("list")
    assert f"{MODEL}:tone" in out
    assert "other" not in out
    code, _, err = isthmus("load", "tone")
    assert code != 0
    assert "No agent answers" in err


@pytest.mark.parametrize(
    ("fields", "options", "code", "told"),
    [
        ({"rank": 65}, (), 25, ("65", "64")),
        ({"ranks": {"blk.1.attn_v": 70}}, (), 25, ("70", "64")),
        ({"architecture": "qwen2"}, (), 25, ("qwen2", "llama")),
        ({}, ("--base-digest", "sha256:" + "0" * 64), 25, ("sha256:0000",)),
        ({}, ("--base-digest", "sha256:0"), 2, ("64 hexadecimal digits",)),
        ({}, ("--name", "no such:x"), 2, ("base:adapter",)),
        ({}, ("--name", "a/b"), 2, ("base:adapter",)),
        ({}, ("--name", ""), 2, ("base:adapter",)),
        ({}, ("--name", "unknown:x"), 1, ("unknown",)),
    ],
)
def test_lr_05_a_refused_adapter_is_told_in_one_line_and_not_listed(
    isthmus: Isthmus, tmp_path: Path, fields: dict[str, object], options: tuple[str, ...], code: int, told: tuple[str]
) -> None:
    path = write_adapter(tmp_path / "tone.gguf", **{"layers": 2, **fields})  # type: ignore[arg-type]
    got, out, err = isthmus("register", str(path), *options)
    assert (got, out) == (code, "")
    assert err.count("\n") == 1
    assert all(each in err for each in told)
    assert json.loads(isthmus("list", "--json")[1]) == []


@pytest.mark.parametrize("by_url", [False, True])
@pytest.mark.parametrize(
    ("kind", "code", "told"), [("gone", 1, "No such file"), ("folder", 2, "is no file"), ("pipe", 2, "is no file")]
)
def test_what_is_no_file_is_told_and_not_waited_for(
    isthmus: Isthmus, tmp_path: Path, kind: str, code: int, told: str, by_url: bool
) -> None:
    path = tmp_path / "tone.gguf"
    {"gone": lambda: None, "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    got, out, err = isthmus("register", str(path), *(("--url", "http://127.0.0.1:9") if by_url else ()))
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert told in err


def test_a_link_to_a_file_is_that_file(isthmus: Isthmus, tmp_path: Path) -> None:
    write_adapter(tmp_path / "real.gguf", layers=2)
    (tmp_path / "tone.gguf").symlink_to("real.gguf")
    assert isthmus("register", str(tmp_path / "tone.gguf"))[0] == 0
    assert [each["name"] for each in json.loads(isthmus("list", "--json")[1])] == [f"{MODEL}:tone"]


def test_what_an_agent_refuses_ends_as_what_is_refused_here(isthmus: Isthmus, agent: str, tmp_path: Path) -> None:
    whole = write_adapter(tmp_path / "tone.gguf", layers=2)
    (tmp_path / "torn.gguf").write_bytes(whole.read_bytes()[:9000])
    write_adapter(tmp_path / "high.gguf", layers=2, rank=65)
    for name, options, code in (("torn", (), 10), ("high", (), 25), ("tone", ("--base-digest", "zzz"), 2)):
        got, out, err = isthmus("register", str(tmp_path / f"{name}.gguf"), "--url", agent, *options)
        assert (got, out, err.count("\n")) == (code, "", 1)
        assert "zzz" not in err


@pytest.mark.parametrize(
    ("told", "code"), [("digest_mismatch", 13), ("base_mismatch", 25), ("untrusted", 10), ("invalid_request", 2)]
)
@pytest.mark.parametrize("action", ["load", "pin"])
def test_so_does_what_it_refuses_to_load(
    isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch, action: str, told: str, code: int
) -> None:
    async def sent(*_: object) -> tuple[int, bytes]:
        return 400, envelope_bytes(InvalidRequest("It is not what it was.", code=told))

    monkeypatch.setattr(adapter_console, "_sent", sent)
    got, _, err = isthmus(action, "tone", "--url", "http://agent")
    assert (got, err) == (code, "error: It is not what it was.\n")


def test_the_running_agent_loads_and_lets_go(isthmus: Isthmus, agent: str, tmp_path: Path) -> None:
    path = write_adapter(tmp_path / "tone.gguf", layers=2)
    at = ("--url", agent, "--json")
    assert json.loads(isthmus("register", str(path), *at)[1])["loaded"] is False
    assert json.loads(isthmus("load", "tone", *at)[1])["loaded"] is True
    assert json.loads(isthmus("pin", "tone", *at)[1])["pinned"] is True
    (listed,) = json.loads(isthmus("list", *at)[1])
    assert (listed["loaded"], listed["pinned"], listed["in_use"]) == (True, True, 0)
    code, _, err = isthmus("unload", "tone", *at)
    assert code != 0
    assert "pinned" in err
    assert json.loads(isthmus("unpin", "tone", *at)[1])["pinned"] is False
    assert json.loads(isthmus("unload", "tone", *at)[1])["loaded"] is False
    assert isthmus("load", "nothing", *at)[0] != 0
    # What is registered on this machine while the agent runs is there for its next request.
    assert isthmus("register", str(path), "--name", "late")[0] == 0
    assert json.loads(isthmus("load", "late", *at)[1])["loaded"] is True
    code, _, err = isthmus("rm", "late")
    assert code == 23
    assert "in use" in err
