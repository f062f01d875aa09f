"""Three real adapters on the real engine: whatever runs beside it or ran before it, an answer is that of a cold run."""

from __future__ import annotations

import asyncio
import io
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.devices.probe import probe
from edge.packages.package import Package
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.supervisor import SupervisedEngine
from shared.clock import SystemClock
from tests.edge.adapter_files import write_adapter
from tests.edge.service.fakes import MODEL
from tests.edge.service.harness import Running, received_of, running_agent

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
PROMPTS = ("Name a city.", "Say hello to Ann.", "What is the sea?")
SELECTIONS: dict[str, dict[str, Any]] = {
    "a": {"model": f"{MODEL}:a"},
    "b": {"model": f"{MODEL}:b"},
    "c": {"lora": "c"},
    "none": {},
    "half of a": {"lora": [{"name": "a", "scale": 0.5}]},
    "a and b": {"lora": [f"{MODEL}:a", {"name": "b", "scale": 1.0}]},
}
NEEDED = {"a": "a", "b": "b", "c": "c", "none": "", "half of a": "a", "a and b": "ab"}
Case = tuple[str, str]
MakeAgent = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def make_agent(installed_model: Package, tmp_path: Path) -> MakeAgent:
    """A function that runs an agent with its own adapters over the real engine."""
    numbers = itertools.count()

    @asynccontextmanager
    async def make(*, slots: int = 2, names: str = "abc", **adapters: Any) -> AsyncIterator[Running]:
        folder = tmp_path / f"agent-{next(numbers)}"
        plan = plan_engine(
            installed_model, probe(), PlanRequest(slots=slots, context_tokens=512, threads=1, threads_batch=1)
        )
        engine = SupervisedEngine(plan, clock=SystemClock(), run_dir=folder, adapter_rank_limit=16)
        settings = {"dir": str(folder / "adapters"), "rank_limit": 16, **adapters}
        models = str(installed_model.folder.parent.parent.parent)
        async with running_agent(engine, slots=slots, queue=64, models_dir=models, adapters=settings) as running:
            for name in names:
                status, _ = await register(running, name, write_adapter(folder / f"{name}.gguf", seed=ord(name)))
                assert status == 201
            yield running

    return make


async def register(running: Running, name: str, path: Path) -> tuple[int, dict[str, Any]]:
    url = f"{running.url}/edge/v1/adapters/{MODEL}:{name}"
    async with running.session.put(url, data=io.BytesIO(path.read_bytes())) as response:
        return response.status, await response.json()


async def act(running: Running, name: str, action: str) -> tuple[int, dict[str, Any]]:
    async with running.session.post(f"{running.url}/edge/v1/adapters/{MODEL}:{name}/{action}") as response:
        return response.status, await response.json()


async def listed(running: Running) -> dict[str, dict[str, Any]]:
    async with running.session.get(f"{running.url}/edge/v1/adapters") as response:
        return {each["name"].partition(":")[2]: each for each in (await response.json())["adapters"]}


async def answer(running: Running, prompt: str, selection: str, **fields: Any) -> tuple[str, int]:
    """Text, and tokens taken from the cache."""
    body = {"temperature": 0, "max_tokens": 8, **SELECTIONS[selection], **fields}
    async with running.chat(prompt, **body) as response:
        value = await response.json()
        assert response.status == 200, value
        assert value["model"] == SELECTIONS[selection].get("model", MODEL)
        return value["choices"][0]["message"]["content"], value["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def known_cold() -> dict[Case, str]:
    """Cold answers that a test of this module has found."""
    return {}


async def cold_answers(make_agent: MakeAgent, cases: list[Case], known: dict[Case, str]) -> dict[Case, str]:
    """Each selection in a process of its own, which has nothing but its adapters; one request after the other."""
    for selection in dict.fromkeys(case[1] for case in cases if case not in known):
        async with make_agent(slots=1, names=NEEDED[selection]) as running:
            for prompt in PROMPTS:
                known[prompt, selection], _ = await answer(running, prompt, selection)
    return known


async def test_lr_01_warm_answers_are_cold_answers(make_agent: MakeAgent, known_cold: dict[Case, str]) -> None:
    """LR-01: one slot, one prompt, every order of adapters and scales: nothing of another one's cache is reused."""
    selections = ["a", "b", "none", "half of a"]
    cold = await cold_answers(make_agent, [(PROMPTS[0], selection) for selection in selections], known_cold)
    assert len({cold[PROMPTS[0], selection] for selection in selections}) == len(selections)
    async with make_agent(slots=1) as running:
        before = None
        for selection in ["a", "b", "a", "none", "half of a", "a", "half of a", "b", "none", "none", "a", "a"]:
            text, cached = await answer(running, PROMPTS[0], selection)
            assert text == cold[PROMPTS[0], selection]
            assert cached == 0 or selection == before
            before = selection


@pytest.mark.parametrize("requests", [16, pytest.param(200, marks=pytest.mark.slow)])
async def test_mixed_requests_of_eight_clients_equal_their_solo_runs(
    make_agent: MakeAgent, known_cold: dict[Case, str], requests: int
) -> None:
    cases = list(itertools.product(PROMPTS, SELECTIONS))
    cold = await cold_answers(make_agent, cases, known_cold)
    assert len({cold[PROMPTS[0], selection] for selection in SELECTIONS}) >= 5  # each one has its effect
    draw = random.Random(7)
    waiting = [draw.choice(cases) for _ in range(requests)]
    async with make_agent(slots=2, count=3) as running:
        wrong: list[Case] = []

        async def client() -> None:
            while waiting:
                case = waiting.pop()
                text, _ = await answer(running, *case)
                if text != cold[case]:
                    wrong.append(case)

        await asyncio.gather(*(client() for _ in range(8)))
        assert wrong == []
        metrics = await running.metrics()
        assert 'isthmus_edge_adapter_loads_total{outcome="loaded"} 3.0' in metrics
        assert "isthmus_edge_adapters_resident 3.0" in metrics
        assert "isthmus_edge_adapter_evictions_total 0.0" in metrics


async def test_lr_03_an_adapter_in_use_is_not_touched_by_others(make_agent: MakeAgent) -> None:
    """LR-03: room for one: B waits until A has ended; another scale of A runs beside it; each text is its own."""
    long, selections = {"max_tokens": 40}, ("half of a", "b", "a")
    async with make_agent(slots=3, count=1, names="ab") as running:
        alone = {selection: (await answer(running, PROMPTS[2], selection, **long))[0] for selection in selections}
        async with running.chat(PROMPTS[2], **SELECTIONS["a"], temperature=0, stream=True, **long) as stream:
            received = await stream.content.readany()
            beside = [
                asyncio.create_task(answer(running, PROMPTS[2], selection, **long)) for selection in ("b", "half of a")
            ]
            received += await received_of(stream)
        assert received.endswith(b"data: [DONE]\n\n")
        assert [(await task)[0] for task in beside] == [alone["b"], alone["half of a"]]
        assert (await answer(running, PROMPTS[2], "a", **long))[0] == alone["a"]
        assert sum(each["loaded"] for each in (await listed(running)).values()) == 1


async def test_lr_05_a_rank_over_the_limit_is_refused_at_the_door(make_agent: MakeAgent, tmp_path: Path) -> None:
    """LR-05: 400 with both numbers; not listed; the base model goes on in the same process."""
    async with make_agent(slots=1, names="") as running:
        pid = running.agent.parts.engine.status.pid
        for path in (
            write_adapter(tmp_path / "all.gguf", rank=64),
            write_adapter(tmp_path / "one.gguf", ranks={"blk.7.attn_q": 64}),
        ):
            status, body = await register(running, "big", path)
            assert (status, body["error"]["code"]) == (400, "rank_too_high")
            assert "64" in body["error"]["message"]
            assert "16" in body["error"]["message"]
        assert await listed(running) == {}
        assert (await act(running, "big", "load"))[0] == 404
        await answer(running, PROMPTS[0], "none")
        assert running.agent.parts.engine.status.pid == pid


async def test_a_new_version_serves_new_requests_while_running_ones_finish_on_theirs(
    make_agent: MakeAgent, tmp_path: Path
) -> None:
    long = {"max_tokens": 40}
    async with make_agent(slots=2, count=1, names="a") as running:
        old, _ = await answer(running, PROMPTS[2], "a", **long)
        async with running.chat(PROMPTS[2], **SELECTIONS["a"], temperature=0, stream=True, **long) as stream:
            received = await stream.content.readany()
            assert (await register(running, "a", write_adapter(tmp_path / "new.gguf", seed=99)))[0] == 201
            # Beside the running one, whose version is no longer wanted, and which ends all the same.
            new, _ = await answer(running, PROMPTS[2], "a", **long)
            received += await received_of(stream)
        assert received.endswith(b"data: [DONE]\n\n")
        assert new != old
        assert (await answer(running, PROMPTS[2], "a", **long))[0] == new


async def test_a_load_that_fails_changes_nothing(make_agent: MakeAgent, tmp_path: Path) -> None:
    async with make_agent(slots=1, names="ab") as running:
        good, _ = await answer(running, PROMPTS[0], "a")
        pid = running.agent.parts.engine.status.pid
        (damaged,) = tmp_path.glob(f"agent-*/adapters/{MODEL}/b/versions/*/adapter.gguf")
        damaged.chmod(0o644)
        with damaged.open("r+b") as file:
            file.seek(-1, 2)
            file.write(b"\x01")
        assert (await act(running, "b", "load"))[1]["error"]["code"] == "digest_mismatch"
        async with running.chat(**SELECTIONS["b"]) as response:
            assert response.status == 400
        assert running.agent.parts.engine.status.pid == pid
        assert (await answer(running, PROMPTS[0], "a"))[0] == good
        assert 'isthmus_edge_adapter_loads_total{outcome="failed"} 2.0' in await running.metrics()
