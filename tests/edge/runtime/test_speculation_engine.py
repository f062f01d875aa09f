"""The real engine speculates: the same words as without, and it says how many tokens it proposed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from edge.devices.probe import probe
from edge.packages.package import Package
from edge.runtime.drafting import Drafting, drafting, vocabulary_of
from edge.runtime.options import EngineOptions
from edge.runtime.plan import PlanRequest, StaticPlan, plan_engine
from edge.runtime.supervisor import SupervisedEngine
from edge.scheduling.draft import Mismatch
from edge.scheduling.speculation import SpeculationMode
from shared.errors import SettingsError

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

_LINES = "\n".join(f"{number}. The {number}th station on the line is called Stop {number}." for number in range(1, 9))
_COPY = {
    "messages": [{"role": "user", "content": f"Repeat this list word for word:\n{_LINES}"}],
    "temperature": 0,
    "max_tokens": 90,
}
_PROSE = {
    "messages": [{"role": "user", "content": "Tell a story about a baker."}],
    "temperature": 0,
    "max_tokens": 60,
    "stop": ["\n\n"],
}


async def _asked(http: aiohttp.ClientSession, body: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    async with http.post("/v1/chat/completions", json=body) as response:
        assert response.status == 200
        answer = await response.json()
        usage = answer["usage"]["completion_tokens"]
        return answer["choices"][0]["message"]["content"], usage, answer["timings"]


@pytest.mark.parametrize("mode", [SpeculationMode.NGRAM_MAP_K, SpeculationMode.NGRAM_SIMPLE])
async def test_greedy_answers_are_the_same_with_and_without(
    make_engine: Callable[..., SupervisedEngine],
    session: Callable[..., aiohttp.ClientSession],
    plan: StaticPlan,
    mode: SpeculationMode,
) -> None:
    """SP-03: stop texts, limits and the end token hold inside a block of proposed tokens too."""
    engine = make_engine(plan)
    await engine.start()
    assert engine.speculates
    async with session(engine.connection()) as http:
        plain = [await _asked(http, body) for body in (_COPY, _PROSE)]
    assert all("draft_n" not in timings for _, _, timings in plain)
    await engine.speculate(mode)
    assert engine.status.facts is not None
    assert engine.status.facts.speculation is mode
    async with session(engine.connection()) as http:
        fast = [await _asked(http, body) for body in (_COPY, _PROSE)]
    assert [(text, tokens) for text, tokens, _ in fast] == [(text, tokens) for text, tokens, _ in plain]
    assert fast[0][2]["draft_n"] > 0
    assert fast[0][1] <= 90
    await engine.speculate(SpeculationMode.OFF)
    assert engine.status.facts.speculation is SpeculationMode.OFF


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
