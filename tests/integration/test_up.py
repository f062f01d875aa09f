"""`isthmus up` with the real tiers: answers, faults that end in one line, and no process left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import orjson
import psutil
import pytest

from shared.launcher.processes import FOLDER_VARIABLE
from shared.testing.models import model_source
from shared.testing.program import Program, child_environment, command, isthmus

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(600)]
LIMIT_S = 240
MODEL = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model store that `isthmus edge pull` has filled."""
    home = tmp_path_factory.mktemp("pulled")
    done = subprocess.run(
        [*command(), "edge", "pull", model_source(MODEL)], env=child_environment(home), capture_output=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return home / "models"


@pytest.fixture
def home(models: Path) -> Iterator[Path]:
    """A home of its own with the model; its path is short, for the control socket's name."""
    with tempfile.TemporaryDirectory(prefix="isthmus-up-") as folder:
        (Path(folder) / "models").symlink_to(models, target_is_directory=True)
        yield Path(folder)
        for process in _left(Path(folder)):
            process.kill()


@pytest.fixture
def settings(free_port: Callable[[], int]) -> dict[str, Any]:
    """An edge pair on free ports."""
    return {"edge": {"port": free_port()}, "router": {"port": free_port()}}


def _left(home: Path) -> list[psutil.Process]:
    """Processes that runs of this home started and that still run."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(FOLDER_VARIABLE) == str(home / "run") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _tree(program: Program) -> list[psutil.Process]:
    """Every process below the launcher: router, agent, and the agent's engine, which carries no mark."""
    tree = psutil.Process(program.process.pid).children(recursive=True)
    assert len(tree) >= 3
    return tree


def _are_gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=10)
    return not alive


def _until(condition: Callable[[], bool], program: Program) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert program.process.poll() is None, program.log_end()
        assert time.monotonic() < deadline_s, program.log_end()
        time.sleep(0.1)


def _until_ready(program: Program, seen: int = 0) -> None:
    _until(lambda: program.log.read_text().count('"event":"ready"') > seen, program)


def _state(home: Path) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(10)
        control.connect(str(home / "run/up.sock"))
        control.sendall(b"GET /state HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: control.recv(65536), b""))
    state: dict[str, Any] = orjson.loads(answer.partition(b"\r\n\r\n")[2])
    return state


def _ask(url: str, route: str, *, stream: bool) -> tuple[str, str]:
    """Text of the answer and the tier that it came from."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=120)
    question = [{"role": "user", "content": "Which city is the capital of France?"}]
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=question, temperature=0, max_tokens=24, stream=stream,
        extra_headers={"x-isthmus-route": route},
    )  # fmt: skip
    parsed = raw.parse()
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in parsed if chunk.choices)
    else:
        text = parsed.choices[0].message.content
    return text, raw.headers["x-isthmus-tier"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_edge_answers_through_the_router(stack: Any, stream: bool) -> None:
    text, tier = _ask(stack.url, "edge", stream=stream)
    assert "Paris" in text
    assert tier == "edge"


@pytest.mark.cloud
@pytest.mark.parametrize("stream", [False, True])
def test_the_cloud_answers_through_the_router(stack: Any, cloud_url: str, stream: bool) -> None:
    text, tier = _ask(stack.url, "cloud", stream=stream)
    assert "Paris" in text
    assert tier == "cloud"


def _run_to_end(home: Path, settings: dict[str, Any], name: str) -> tuple[int, str]:
    with isthmus("up", "--tiers", "edge", home=home, settings=settings, name=name) as program:
        code = program.process.wait(LIMIT_S)
    return code, program.log.read_text()


def _error_lines(text: str) -> list[str]:
    assert "Traceback" not in text
    return [line for line in text.splitlines() if line.startswith("error: ")]


def test_a_second_up_of_the_same_home_says_so(stack: Any) -> None:
    done = subprocess.run(
        [*command(), "up", "--tiers", "edge"], env=stack.environment, capture_output=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("error: isthmus up already runs in ")


def test_sigterm_or_stop_leaves_no_process_and_a_second_start_works(home: Path, settings: dict[str, Any]) -> None:
    for name in ("first", "second"):
        with isthmus("up", "--json", "--tiers", "edge", home=home, settings=settings, name=name) as program:
            _until_ready(program)
            text, _ = _ask(f"http://127.0.0.1:{settings['router']['port']}", "auto", stream=False)
            assert "Paris" in text
            tree = _tree(program)
            if name == "first":
                program.process.send_signal(signal.SIGTERM)
            else:
                said = _run("stop", home=home)
                assert (said.returncode, said.stdout) == (0, "Stopped.\n"), said.stderr
            assert program.process.wait(LIMIT_S) == 0
            assert _left(home) == []
            assert _are_gone(tree)
    none = _run("stop", home=home)
    assert (none.returncode, none.stderr.count("\n")) == (1, 1)
    assert "No isthmus up runs in this home" in none.stderr


def _run(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(), *words], env=child_environment(home), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_what_a_killed_launcher_left_is_ended_by_the_next(home: Path, settings: dict[str, Any]) -> None:
    with isthmus("up", "--json", "--tiers", "edge", home=home, settings=settings, name="killed") as program:
        _until_ready(program)
        strays = _tree(program)
        program.process.kill()
        program.process.wait()
    assert _left(home)
    with isthmus("up", "--json", "--tiers", "edge", home=home, settings=settings, name="next") as program:
        _until_ready(program)
        assert _are_gone(strays)
        assert "that an earlier run had left behind" in program.log.read_text()
        url = f"http://127.0.0.1:{settings['router']['port']}"
        _until(lambda: _answers(url), program)


def test_a_crashed_tier_comes_back_and_the_other_stays(home: Path, settings: dict[str, Any]) -> None:
    with isthmus("up", "--json", "--tiers", "edge", home=home, settings=settings, name="crash") as program:
        _until_ready(program)
        before = _state(home)["tiers"]
        os.kill(before["edge"]["pid"], signal.SIGKILL)
        _until(lambda: _state(home)["tiers"]["edge"]["restarts"] == 1, program)
        _until(lambda: _state(home)["tiers"]["edge"]["state"] == "ready", program)
        assert _state(home)["tiers"]["router"] == before["router"]
        url = f"http://127.0.0.1:{settings['router']['port']}"
        _until(lambda: _answers(url), program)


def _answers(url: str) -> bool:
    try:
        return "Paris" in _ask(url, "edge", stream=False)[0]
    except openai.APIStatusError as error:
        assert error.status_code == 503
        return False


def test_a_taken_port_is_one_line_and_nothing_was_started(home: Path, settings: dict[str, Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", settings["edge"]["port"]))
        taken.listen()
        code, text = _run_to_end(home, settings, "taken")
    assert code == 2
    (line,) = _error_lines(text)
    assert f"Port {settings['edge']['port']} on 127.0.0.1" in line
    assert "edge.port" in line
    assert _left(home) == []


@pytest.mark.parametrize(
    ("broken", "begins", "said", "ends_with"),
    [
        ({"slots": 1000}, "error: Setting edge.slots: ", "less than or equal to 64", 2),
        ({"slotz": 1}, "error: Setting edge.slotz: ", "Did you mean slots?", 2),
        ({"model": "no-such-model"}, "error: edge: ", "No model of that name is known", 1),
    ],
)
def test_a_tier_that_cannot_start_says_why_in_one_line(
    home: Path, settings: dict[str, Any], broken: dict[str, Any], begins: str, said: str, ends_with: int
) -> None:
    """A setting is read before any tier starts, and its name says which; what a tier finds out is named by the tier."""
    settings["edge"] |= broken
    code, text = _run_to_end(home, settings, "broken")
    assert code == ends_with
    (line,) = _error_lines(text)
    assert line.startswith(begins)
    assert said in line
    assert _left(home) == []
