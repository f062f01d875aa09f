"""The real engine speculates: the same words as without, and it says how many tokens it proposed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from edge.devices.probe import probe
from edge.packages.library import Library
from edge.packages.package import Package
from edge.planning import plan_for
from edge.runtime.drafting import Drafting, drafting, vocabulary_of
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.port import EngineState
from edge.runtime.supervisor import SupervisedEngine
from edge.scheduling.draft import Mismatch
from edge.scheduling.speculation import SpeculationMode
from edge.scheduling.tuning import Spin, Tuning
from edge.settings import EdgeSettings
from edge.speed_settings import SpeculationSettings
from shared.errors import IsthmusError, NotFound, SettingsError
from shared.settings import load

_MAP_K = SpeculationMode.NGRAM_MAP_K
_LINES = "\n".join(f"{number}. The {number}th station on the line is called Stop {number}." for number in range(1, 9))
_COPY = {
    "messages": [{"role": "user", "content": f"Repeat this list word for word:\n{_LINES}"}],
    "temperature": 0,
    "max_tokens": 48,
}
_PROSE = {
    "messages": [{"role": "user", "content": "Tell a story about a baker."}],
    "temperature": 0,
    "max_tokens": 24,
    "stop": [", a humble"],
}
_TEN = {**_COPY, "max_tokens": 10}
_ENDS = {
    "messages": [{"role": "user", "content": f"Say it again: {'one two three four five six seven. ' * 2}"}],
    "temperature": 0,
    "max_tokens": 64,
}
_ALL = (_COPY, _PROSE, _TEN, _ENDS)


async def _asked(http: aiohttp.ClientSession, body: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    async with http.post("/v1/chat/completions", json=body) as response:
        assert response.status == 200
        answer = await response.json()
        usage = answer["usage"]["completion_tokens"]
        return answer["choices"][0]["message"]["content"], usage, answer["timings"]


async def _streamed(http: aiohttp.ClientSession, body: dict[str, Any]) -> str:
    async with http.post("/v1/chat/completions", json={**body, "stream": True}) as response:
        events = [
            json.loads(line[6:]) for line in (await response.read()).split(b"\n\n") if line.startswith(b"data: {")
        ]
    return "".join(each["choices"][0]["delta"].get("content") or "" for each in events if each["choices"])


@pytest.fixture
def draft(installed_model: Package, tmp_path: Path) -> Package:
    """The same model once more, in a store of its own, so that a test may spoil it."""
    return Library(tmp_path / "drafts").import_path(installed_model.model_path, "draft")


@pytest.mark.engine
@pytest.mark.timeout(300)
async def test_greedy_answers_are_the_same_with_and_without(
    make_engine: Callable[..., SupervisedEngine],
    session: Callable[..., aiohttp.ClientSession],
    installed_model: Package,
    draft: Package,
) -> None:
    """SP-03: stop texts, limits and the end token hold inside a block of proposed tokens too. SP-01: with a draft that
    fits, the answer is the target's own. A draft whose file is gone costs nobody the model. EC-01: two at once."""
    found = drafting(installed_model, draft)
    assert found.mismatch is None
    request = PlanRequest(
        slots=2, context_tokens=512, threads=1, threads_batch=1, batch_tokens=32, draft_tokens=64, drafting=found
    )
    engine = make_engine(plan_engine(installed_model, probe(), request))
    await engine.start()
    assert engine.speculates
    async with session(engine.connection()) as http:
        plain = [await _asked(http, body) for body in _ALL]
    assert all("draft_n" not in timings for _, _, timings in plain)
    assert not plain[1][0].endswith(", a humble")
    assert [plain[2][1] <= 10, plain[3][1] < 64] == [True] * 2  # the last one ends by itself
    for mode in (_MAP_K, SpeculationMode.NGRAM_SIMPLE, SpeculationMode.NGRAM_MOD, SpeculationMode.DRAFT):
        await engine.speculate(mode)
        assert engine.status.facts is not None
        assert engine.status.facts.speculation is mode
        bodies = _ALL if mode is SpeculationMode.NGRAM_SIMPLE else _ALL[:2]
        async with session(engine.connection()) as http:
            fast = [await _asked(http, body) for body in bodies]
            if mode is SpeculationMode.NGRAM_SIMPLE:  # what both slots propose is one batch
                assert [await _streamed(http, body) for body in (_PROSE, _TEN)] == [fast[1][0], fast[2][0]]
                both = await asyncio.gather(*(_asked(http, _COPY) for _ in range(2)))
                assert [text for text, _, _ in both] == [plain[0][0]] * 2
        assert [(text, tokens) for text, tokens, _ in fast] == [each[:2] for each in plain[: len(fast)]], mode
        if mode is not SpeculationMode.NGRAM_MOD:  # which proposes what answers before this one said
            assert fast[0][2]["draft_n"] > 0
        assert fast[0][1] <= 48
    await _loses_its_draft(engine, draft)
    await engine.speculate(SpeculationMode.NGRAM_SIMPLE)
    for left in (SpeculationMode.NGRAM_SIMPLE, SpeculationMode.OFF):  # what it proposes may be what it dies of
        await _killed(engine)
        assert engine.status.facts is not None
        assert engine.status.facts.speculation is left


async def _killed(engine: SupervisedEngine) -> None:
    """Return once the next process serves."""
    pid = engine.status.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while engine.status.pid in (pid, None) or engine.status.state is not EngineState.READY:
            await asyncio.sleep(0.01)


async def _loses_its_draft(engine: SupervisedEngine, draft: Package) -> None:
    """It crashes while a draft runs whose file has been replaced by another one."""
    other = draft.model_path.with_name("other")
    other.write_bytes(b"GGUF of somebody else")
    other.replace(draft.model_path)
    await _killed(engine)
    assert engine.status.facts is not None
    assert engine.status.facts.speculation is SpeculationMode.OFF
    with pytest.raises(IsthmusError):
        await engine.speculate(SpeculationMode.DRAFT)
    assert engine.status.state is EngineState.READY


@pytest.mark.parametrize(
    ("changes", "mismatch"),
    [
        ({}, None),
        ({"tokens": 32000}, Mismatch.SIZE),
        ({"tokens_sha256": "0" * 64}, Mismatch.TEXT),
        ({"special_ids": {"eos": 7}}, Mismatch.SPECIAL_IDS),
    ],
)
def test_sp_01_a_draft_with_another_vocabulary_is_told_apart_before_anything_starts(
    installed_model: Package, changes: dict[str, Any], mismatch: Mismatch | None
) -> None:
    """Another size; as many tokens, one with another text; another end token."""
    other = _with_tokenizer(installed_model, changes)
    found = drafting(installed_model, other)
    assert found == Drafting(other, mismatch)
    assert (found.memory is None) == (mismatch is not None)
    assert vocabulary_of(installed_model).tokens == 49152
    plain = plan_engine(installed_model, probe(), PlanRequest(context_tokens=512))
    planned = plan_engine(installed_model, probe(), PlanRequest(context_tokens=512, drafting=found))
    assert (planned.capacity.draft_bytes > 0) == (mismatch is None)
    assert planned.capacity.engine_bytes - planned.capacity.draft_bytes == plain.capacity.engine_bytes


def _with_tokenizer(package: Package, changes: dict[str, Any]) -> Package:
    manifest = package.manifest
    tokenizer = manifest.model.tokenizer.model_copy(update=changes)
    model = manifest.model.model_copy(update={"tokenizer": tokenizer})
    return replace(package, manifest=manifest.model_copy(update={"model": model}))


def test_a_draft_that_is_not_installed_is_told_apart_from_the_model(installed_model: Package) -> None:
    settings = load(
        EdgeSettings, "edge", models_dir=str(installed_model.folder.parents[2]), speculation={"draft": "absent"}
    )
    with pytest.raises(NotFound, match=r"edge\.speculation\.draft.*absent"):
        plan_for(settings)


def test_a_draft_and_the_token_before_it_fit_the_batch(installed_model: Package) -> None:
    """The engine would abort in the middle of an answer; whatever batch suits a device, few slots may speculate."""
    request = PlanRequest(context_tokens=512, batch_tokens=32, draft_tokens=64)
    plan = plan_engine(installed_model, probe(), request)
    lengths = {mode: plan.in_mode(mode).options.wire()["draft_lengths"] for mode in SpeculationMode}
    assert lengths == {
        SpeculationMode.OFF: "",
        SpeculationMode.DRAFT: "n_max=16",
        SpeculationMode.NGRAM_CACHE: "",
        SpeculationMode.NGRAM_SIMPLE: "size_n=6,size_m=31",
        SpeculationMode.NGRAM_MAP_K: "size_n=6,size_m=31",
        SpeculationMode.NGRAM_MAP_K4V: "size_n=6,size_m=31",
        SpeculationMode.NGRAM_MOD: "n_max=31,n_min=31",
    }
    shared = {slots: plan.shape(slots, 512).in_mode(_MAP_K).options.wire()["draft_lengths"] for slots in (2, 16, 17)}
    assert shared == {2: "size_n=6,size_m=15", 16: "size_n=6,size_m=1", 17: ""}  # all of them may propose at once
    crowded = plan.in_mode(_MAP_K).shape(17, 512)
    assert (crowded.speculation, crowded.speculating) == (SpeculationMode.OFF, None)
    tuned = plan.in_mode(_MAP_K).tuned(Tuning(1, 1, Spin.BRIEF, 32, 1.0))
    assert (tuned.speculation, tuned.options.wire()["draft_lengths"]) == (_MAP_K, "size_n=6,size_m=31")
    stated = SpeculationSettings()
    assert (stated.draft_tokens, stated.ngram_tokens) == (PlanRequest().draft_tokens, PlanRequest().ngram_tokens)
    with pytest.raises(SettingsError) as refused:
        PlanRequest(draft_tokens=65)
    assert refused.value.param == "draft_tokens"
