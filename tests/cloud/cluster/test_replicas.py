"""Two replicas that serve adapters, on a cluster of their own: one dies under load, adapters come, change and go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from cloud.cli import app
from edge.packages.catalogue import DEFAULT_MODEL
from shared.fleet import CloudCapacity
from shared.settings import HOME_VARIABLE
from shared.testing.stack import running_stack
from tests.cloud.adapters.peft_files import write_peft
from tests.cloud.cluster.conftest import START_LIMIT_S, Cluster, chat, endless, eventually

pytestmark = [pytest.mark.cloud, pytest.mark.slow, pytest.mark.timeout(3600)]

STREAMS = 4
TONE = f"{DEFAULT_MODEL}:tone"
LONG = "The capital of France is the city of Paris and it is known for many things. " * 8
"""More than a block of the cache, so that a second prompt meets the first one's blocks."""


@pytest.fixture(scope="module")
def wide() -> Iterator[Cluster]:
    """The default model with two replicas and room for two adapters."""
    model = {
        "model_id": DEFAULT_MODEL,
        "source": f"package:{DEFAULT_MODEL}",
        "context_tokens": 512,
        "max_num_seqs": 8,
        "threads": 1,
        "adapters": {"count": 2},
        "autoscaling": {"min_replicas": 2, "max_replicas": 2, "max_ongoing_requests": 16},
    }
    with running_stack({"cloud": {"models": [model]}, "up": {"ready_limits_s": {"cloud": 1800}}}) as stack:
        yield Cluster(stack)


def test_a_replica_that_dies_ends_its_streams_at_once_and_the_other_serves_on(wide: Cluster) -> None:
    def stream(_: int) -> tuple[bytes, float]:
        connection = wide.connect()
        body = json.dumps(endless(stream=True, max_tokens=200)).encode()
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        return connection.getresponse().read(), time.monotonic()

    with ThreadPoolExecutor(STREAMS) as pool:
        running = [pool.submit(stream, number) for number in range(STREAMS)]
        eventually(lambda: wide.capacity()["running"] == STREAMS)
        killed_s = time.monotonic()
        next(process for process in wide.processes() if _is_replica(process)).kill()
        probe = wide.ask("POST", "/v1/chat/completions", chat(max_tokens=4))
        ended = [each.result() for each in running]
    assert probe.status == 200
    cut = [(text, at_s) for text, at_s in ended if b'data: {"error"' in text]
    for text, at_s in cut:
        assert text.count(b'data: {"error"') == 1
        assert b"[DONE]" not in text
        assert at_s - killed_s < 2
    assert sum(text.endswith(b"data: [DONE]\n\n") for text, _ in ended) == STREAMS - len(cut)
    assert cut
    eventually(lambda: wide.capacity()["replicas_ready"] == 2, START_LIMIT_S)


def test_adapters_come_change_and_go_without_touching_the_base(
    wide: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LR-05 and the reload of a name: rank, 404, versions that never share cached blocks."""
    monkeypatch.setenv(HOME_VARIABLE, str(wide.stack.home))

    def command(*words: str) -> int:
        arguments = ["adapters", *words, "--config", str(wide.stack.config)]
        return CliRunner().invoke(app, arguments).exit_code

    def text(model: str) -> str:
        body = {"model": model, "prompt": LONG, "max_tokens": 4, "temperature": 0}
        answer = wide.ask("POST", "/v1/completions", body).json
        assert answer["model"] == model
        return str(answer["choices"][0]["text"])

    base = text(DEFAULT_MODEL)
    assert wide.ask("POST", "/v1/completions", _body(TONE)).error["code"] == "adapter_not_found"
    for name, rank in (("first", 8), ("second", 8), ("high", 64)):
        write_peft(tmp_path / name, seed=len(name), layers=30, rank=rank, scale=0.12)
    assert command("register", str(tmp_path / "high"), "--name", TONE) != 0
    assert wide.ask("POST", "/v1/completions", _body(TONE)).status == 404
    assert command("register", str(tmp_path / "first"), "--name", TONE) == 0
    first = text(TONE)
    assert first not in (base, "")
    assert command("register", str(tmp_path / "second"), "--name", TONE) == 0
    assert command("register", str(tmp_path / "second"), "--name", f"{DEFAULT_MODEL}:cold") == 0
    assert text(TONE) == text(f"{DEFAULT_MODEL}:cold") != first
    assert text(DEFAULT_MODEL) == base
    capacity = CloudCapacity.model_validate(wide.capacity())
    assert [adapter.name for adapter in capacity.adapters] == ["cold", "tone"]
    assert TONE in [model.id for model in wide.client.models.list()]
    assert command("remove", TONE) == 0
    assert wide.ask("POST", "/v1/completions", _body(TONE)).status == 404


def _body(model: str) -> dict[str, Any]:
    return {"model": model, "prompt": "a", "max_tokens": 1}


def _is_replica(process: psutil.Process) -> bool:
    try:
        return next(iter(process.cmdline()), "").startswith(f"ray::ServeReplica:isthmus:model:{DEFAULT_MODEL}")
    except psutil.Error:
        return False
