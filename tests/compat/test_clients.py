"""Clients that others made, as they are, against a router with an edge agent behind it.

Libraries run in an environment of their own (requirements/compat.txt): some need other releases than this suite does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.testing.program import command
from shared.testing.stack import Stack, running_stack

pytestmark = [pytest.mark.compat, pytest.mark.engine, pytest.mark.timeout(600)]

PYTHON_VARIABLE = "ISTHMUS_COMPAT_PYTHON"
MODEL = "smollm2-135m-instruct"
QUESTION = "Which city is the capital of France?"
LIMIT_S = 300
PAGE = Path(__file__).parents[2] / "docs/explanation/compatibility.md"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A router and one agent, as `isthmus up --tiers edge` starts them."""
    with running_stack({"edge": {"context_tokens": 1024, "engine": {"threads": 1}}}, tiers=("edge",)) as started:
        yield started


@pytest.fixture
def python(stack: Stack) -> Callable[..., bytes]:
    """Runs Python of the clients' environment; the answer is what it printed."""
    interpreter = os.environ.get(PYTHON_VARIABLE)
    if interpreter is None:
        pytest.skip("needs the environment of requirements/compat.txt; make test-compat makes it")

    def run(*words: str) -> bytes:
        done = subprocess.run(
            [interpreter, "-I", *words], capture_output=True, timeout=LIMIT_S, check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(stack.home)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        return done.stdout

    return run


@pytest.fixture
def client(stack: Stack, python: Callable[..., bytes]) -> Callable[[str], dict[str, Any]]:
    """Runs one of the programs in `clients`; the answer is what it printed."""

    def run(name: str) -> dict[str, Any]:
        printed = python(str(Path(__file__).parent / "clients" / f"{name}.py"), f"{stack.url}/v1", MODEL)
        told: dict[str, Any] = orjson.loads(printed.splitlines()[-1])
        return told

    return run


def test_the_official_client_in_an_older_release(client: Callable[[str], dict[str, Any]]) -> None:
    told = client("openai_client")
    assert told["version"].startswith("2.")
    assert "Paris" in told["whole"]
    assert "".join(told["stream"]) == told["whole"]
    assert told["same_usage"]
    assert told["legacy"].startswith(" Paris")
    assert MODEL in told["models"]
    assert told["refused"] == {"param": "model", "code": "model_not_found"}


def test_langchain(client: Callable[[str], dict[str, Any]]) -> None:
    told = client("langchain_client")
    assert "Paris" in told["invoke"]
    assert told["batch"] == [told["invoke"]] * 2
    assert len([part for part in told["stream"] if part]) > 1
    assert "".join(told["stream"]) == told["invoke"]
    assert told["finish"] in ("stop", "length")
    assert told["system_usage"] > 0
    assert told["call"]["name"] == "choose"
    assert told["call"]["args"]["city"] in ("Paris", "Rome")
    assert told["after_call"]
    for shaped in ("by_schema", "by_call"):
        assert told[shaped]["name"] in ("Paris", "Rome")
    assert told["refused"] == "temperature"


def test_llama_index(client: Callable[[str], dict[str, Any]]) -> None:
    told = client("llama_index_client")
    assert "Paris" in told["complete"]
    assert told["chat"]
    assert len([part for part in told["stream_chat"] if part]) > 1
    assert "".join(told["stream_chat"]) == "".join(told["stream_complete"]) == told["complete"]
    assert told["call"]["name"] == "choose"
    assert told["call"]["args"]["city"] in ("Paris", "Rome")
    assert told["structured"]["name"] in ("Paris", "Rome")
    assert told["refused"] == "temperature"


def _curl(*words: str) -> subprocess.CompletedProcess[bytes]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return subprocess.run(["curl", "-sS", "-N", *words], capture_output=True, timeout=LIMIT_S, check=True)


def test_curl(stack: Stack) -> None:
    body = {"model": MODEL, "temperature": 0, "messages": [{"role": "user", "content": QUESTION}]}
    asked = (f"{stack.url}/v1/chat/completions", "-H", "content-type: application/json", "-d")
    whole = orjson.loads(_curl(*asked, orjson.dumps(body).decode()).stdout)
    assert "Paris" in whole["choices"][0]["message"]["content"]
    stream = _curl(*asked, orjson.dumps(body | {"stream": True}).decode()).stdout
    assert stream.startswith(b"data: {")
    assert stream.endswith(b"data: [DONE]\n\n")
    # Ollama's way of asking, without a word on the type of the body
    ollama = {"model": MODEL, "prompt": QUESTION, "options": {"temperature": 0}}
    lines = _curl(f"{stack.urls['edge']}/api/generate", "-d", orjson.dumps(ollama).decode()).stdout.splitlines()
    assert "".join(orjson.loads(line)["response"] for line in lines) == whole["choices"][0]["message"]["content"]
    assert orjson.loads(lines[-1])["done"]


def _snippets() -> list[str]:
    return re.findall(r"```(?:python|sh)\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("snippet", _snippets(), ids=lambda text: text.split()[1])
def test_what_the_page_shows_works_as_it_stands(stack: Stack, python: Callable[..., bytes], snippet: str) -> None:
    words = snippet.replace("http://127.0.0.1:8080", stack.url).replace("http://127.0.0.1:8081", stack.urls["edge"])
    if not words.startswith("curl"):
        assert b"Paris" in python("-c", words)
        return
    done = subprocess.run(["sh", "-c", words], capture_output=True, timeout=LIMIT_S, check=True)
    lines = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert "Paris" in "".join(line["message"]["content"] for line in lines)


def _isthmus(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(), *words, "--config", str(stack.config)],
        capture_output=True, text=True, env=stack.environment, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def test_ollamas_habits_in_the_terminal(stack: Stack) -> None:
    """The last test: `stop` ends the stack."""
    pulled = _isthmus(stack, "pull", MODEL)
    assert pulled.returncode == 0, pulled.stderr
    installed = stack.home / "models"
    model_file = next(installed.rglob("model.gguf"))
    copied = _isthmus(stack, "edge", "import", str(model_file), "--name", "spare")
    assert copied.returncode == 0, copied.stderr
    listed = orjson.loads(_isthmus(stack, "list", "--json").stdout)
    assert {MODEL, "spare"} <= {each["name"] for each in listed}
    running = orjson.loads(_isthmus(stack, "ps", "--json").stdout)
    assert running["ready"] is True
    told = _isthmus(stack, "run", MODEL, QUESTION)
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip()
    assert _isthmus(stack, "rm", "spare").returncode == 0
    assert _isthmus(stack, "rm", MODEL).returncode == 23  # it is served
    stopped = _isthmus(stack, "stop")
    assert stopped.returncode == 0, stopped.stderr
    assert stack.program.process.wait(60) == 0
