"""The real engine speculates: the same words as without, and it says how many tokens it proposed."""

from __future__ import annotations

import asyncio
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
from edge.runtime.drafting import Drafting, drafting, vocabulary_of
from edge.runtime.options import EngineOptions
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.port import EngineState
from edge.runtime.supervisor import SupervisedEngine
from edge.scheduling.draft import Mismatch
from edge.scheduling.speculation import SpeculationMode
from shared.errors import IsthmusError, SettingsError

_LINES = "\n".join(f"{number}. The {number}th station on the line is called Stop {number}." for number in range(1, 9))
_COPY = {
    "messages": [{"role": "user", "content": f"Repeat this list word for word:\n{_LINES}"}],
    "temperature": 0,
    "max_tokens": 64,
}
_PROSE = {
    "messages": [{"role": "user", "content": "Tell a story about a baker."}],
    "temperature": 0,
    "max_tokens": 24,
    "stop": [", a humble"],
}


async def _asked(http: aiohttp.ClientSession, body: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    async with http.post("/v1/chat/completions", json=body) as response:
        assert response.status == 200
        answer = await response.json()
        usage = answer["usage"]["completion_tokens"]
        return answer["choices"][0]["message"]["content"], usage, answer["timings"]


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
    fits, the answer is the target's own. A draft whose file is gone costs nobody the model."""
    found = drafting(installed_model, draft)
    assert found.mismatch is None
    request = PlanRequest(slots=1, context_tokens=512, threads=1, threads_batch=1, drafting=found)
    engine = make_engine(plan_engine(installed_model, probe(), request))
    await engine.start()
    assert engine.speculates
    async with session(engine.connection()) as http:
        plain = [await _asked(http, body) for body in (_COPY, _PROSE)]
    assert all("draft_n" not in timings for _, _, timings in plain)
    assert not plain[1][0].endswith(", a humble")
    for mode in (SpeculationMode.NGRAM_MAP_K, SpeculationMode.NGRAM_SIMPLE, SpeculationMode.DRAFT):
        await engine.speculate(mode)
        assert engine.status.facts is not None
        assert engine.status.facts.speculation is mode
        async with session(engine.connection()) as http:
            fast = [await _asked(http, body) for body in (_COPY, _PROSE)]
        assert [(text, tokens) for text, tokens, _ in fast] == [(text, tokens) for text, tokens, _ in plain], mode
        assert fast[0][2]["draft_n"] > 0
        assert fast[0][1] <= 64
    await _loses_its_draft(engine, draft)


async def _loses_its_draft(engine: SupervisedEngine, draft: Package) -> None:
    """It crashes while a draft runs whose file has been replaced by another one."""
    other = draft.model_path.with_name("other")
    other.write_bytes(b"GGUF of somebody else")
    other.replace(draft.model_path)
    pid = engine.status.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while engine.status.pid in (pid, None) or engine.status.state is not EngineState.READY:
            await asyncio.sleep(0.01)
    assert engine.status.state is EngineState.READY
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


def test_a_batch_that_cannot_hold_a_draft_is_refused() -> None:
    """The engine would abort in the middle of an answer."""
    with pytest.raises(SettingsError) as refused:
        EngineOptions(
            model_alias="m", context_tokens=512, slots=1, threads=1, threads_batch=1, batch_tokens=64,
            speculation=SpeculationMode.NGRAM_SIMPLE,
        )  # fmt: skip
    assert refused.value.param == "batch_tokens"
