"""The real engine is tried for a moment; what was found is kept, and found again by its identity alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edge.devices.probe import probe
from edge.memory.kv import KvType
from edge.packages.package import Package
from edge.runtime import trials, tuner, tunings
from edge.runtime.options import EngineOptions
from edge.runtime.plan import POOLED_INPUT_TOKENS, PlanRequest, StaticPlan, plan_engine
from edge.runtime.tuner import Progress, Tuner
from edge.scheduling.speculation import SpeculationMode
from edge.scheduling.tuning import Batch, Speeds, Spin, Trial, Tuning
from edge.tuning import TuningJob, identity_of, is_open, known, tuned
from shared.errors import StartFailed

TUNING = Tuning(threads=1, threads_batch=2, spin=Spin.BRIEF, batch_tokens=63, stall_s=0.4)


@pytest.mark.engine
@pytest.mark.timeout(300)
async def test_the_real_engine_is_measured_and_what_was_found_is_kept(
    installed_model: Package, plan: StaticPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One core: one candidate, then a long prompt beside a busy process, which is left early."""
    monkeypatch.setattr(trials, "_PROMPT_TOKENS", 64)
    monkeypatch.setattr(trials, "_OUTPUT_TOKENS", 4)
    monkeypatch.setattr(trials, "_REPETITIONS", 1)
    monkeypatch.setattr(trials, "STALL_PROMPT_TOKENS", 300)
    monkeypatch.setattr(tuner, "_TRIAL_LIMIT_S", 120.0)
    device, request = replace(probe(), cores_usable=1), PlanRequest(context_tokens=1024)
    job = TuningJob(request, plan, device, tmp_path / "devices", tmp_path / "run")
    seen: list[Progress] = []
    found = await job.run(seen.append)
    assert (found.threads, found.threads_batch, found.spin) == (1, 1, Spin.LONG)
    assert found.batch_tokens in (126, 63, 32)
    assert found.stall_s > 0
    assert [each.done for each in seen] == [0, 1, 2]
    assert job.share_done == 1.0
    assert known(request, installed_model, device, tmp_path / "devices") == found
    assert await job.run() == found, "nothing is measured twice"


async def test_threads_are_chosen_also_where_the_batch_is_given(
    installed_model: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of which a vector is made is read at once: its batch stays, and two threads collapse as ever."""

    async def trial(_: Tuner, __: object, threads: int, spin: Spin) -> Trial:
        collapsed = threads > 1 and spin is Spin.LONG
        return Trial(
            threads, spin, Speeds(50.0 * threads, 100.0 * threads), Speeds(*(1.0, 1.0) if collapsed else (40.0, 80.0))
        )

    async def prompt(*_: object) -> list[Batch]:
        return [Batch(0, POOLED_INPUT_TOKENS, 2.0)]

    monkeypatch.setattr(tuner, "check_contents", lambda *_: None)  # only the manifest says so here, not the file
    monkeypatch.setattr(Tuner, "_trial", trial)
    monkeypatch.setattr(Tuner, "_prompt", prompt)
    model = installed_model.manifest.model.model_copy(update={"pooling": "mean"})
    package = replace(installed_model, manifest=installed_model.manifest.model_copy(update={"model": model}))
    device, request = replace(probe(), cores_usable=2), PlanRequest(context_tokens=1024)
    plan = plan_engine(package, device, request)
    assert is_open(request, package)
    found = await TuningJob(request, plan, device, tmp_path / "devices", tmp_path / "run").run()
    assert (found.threads, found.threads_batch, found.spin) == (2, 2, Spin.BRIEF)
    assert (found.batch_tokens, found.stall_s) == (POOLED_INPUT_TOKENS, 2.0)
    assert known(request, package, device, tmp_path / "devices") == found
    options = plan.tuned(found).options
    assert isinstance(options, EngineOptions)
    assert (options.spin, options.batch_tokens, options.ubatch_tokens) == (Spin.BRIEF, 512, 512)


async def test_a_device_on_which_everything_takes_too_long_is_measured_later(
    plan: StaticPlan, installed_model: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "_TRIAL_LIMIT_S", 0.0)
    assert isinstance(plan.options, EngineOptions)
    measured = Tuner(installed_model, plan.options, cores=2, run_dir=tmp_path / "run")
    with pytest.raises(StartFailed, match="too busy"):
        await measured.run()
    assert measured.progress.done == 0


@pytest.mark.parametrize(
    "other",
    [
        {"kv_type": KvType.Q8_0},
        {"deterministic": False},
        {"batch_tokens": 32},
    ],
)
def test_another_identity_is_measured_anew(installed_model: Package, tmp_path: Path, other: dict[str, object]) -> None:
    device, request = probe(), PlanRequest()
    tunings.keep(tmp_path, identity_of(request, installed_model, device), TUNING)
    assert known(request, installed_model, device, tmp_path) == TUNING
    assert known(replace(request, **other), installed_model, device, tmp_path) is None  # type: ignore[arg-type]
    assert known(request, installed_model, replace(device, cpu_model="another"), tmp_path) is None
    retagged = installed_model.manifest.model_copy(update={"digest": "sha256:" + "0" * 64})
    assert known(request, replace(installed_model, manifest=retagged), device, tmp_path) is None


def test_another_build_of_the_engine_is_measured_anew(
    installed_model: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, request = probe(), PlanRequest()
    tunings.keep(tmp_path, identity_of(request, installed_model, device), TUNING)
    monkeypatch.setattr("edge.tuning.engine_version", lambda: "xllamacpp 0")
    assert known(request, installed_model, device, tmp_path) is None


@pytest.mark.parametrize("damage", ["", "{", "null", '{"identity": {}, "tuning": {"threads": 0}}'])
def test_what_is_damaged_is_not_used(installed_model: Package, tmp_path: Path, damage: str) -> None:
    device, request = probe(), PlanRequest()
    tunings.keep(tmp_path, identity_of(request, installed_model, device), TUNING)
    (file,) = tmp_path.glob("tuning-*.json")
    file.write_text(damage)
    assert known(request, installed_model, device, tmp_path) is None


def test_what_the_operator_has_chosen_stays(installed_model: Package, tmp_path: Path) -> None:
    device, request = probe(), PlanRequest(threads=3, batch_tokens=256)
    tunings.keep(tmp_path, identity_of(request, installed_model, device), TUNING)
    found = known(request, installed_model, device, tmp_path)
    assert found == replace(TUNING, threads=3, batch_tokens=256)
    assert is_open(request, installed_model)
    assert not is_open(replace(request, threads_batch=4), installed_model)


def test_a_plan_follows_its_tuning(installed_model: Package) -> None:
    """In every later step and mode as well; the smallest batch has room to speculate too."""
    request = PlanRequest(context_tokens=1024, threads=1, threads_batch=1)
    plan = plan_engine(installed_model, probe(), request).in_mode(SpeculationMode.NGRAM_SIMPLE)
    first = plan.tuned(replace(TUNING, batch_tokens=126))
    assert isinstance(first.options, EngineOptions)
    assert (first.options.threads_batch, first.options.spin, first.options.batch_tokens) == (2, Spin.BRIEF, 126)
    assert first.options.environment
    assert first.speculation is SpeculationMode.NGRAM_SIMPLE
    smaller = first.shape(1, 512)
    assert smaller.options.thread_counts == (1, 2)
    small = plan.tuned(replace(TUNING, batch_tokens=32))
    assert isinstance(small.options, EngineOptions)
    assert (small.options.batch_tokens, small.options.ubatch_tokens) == (32, 32)
    assert small.speculation is SpeculationMode.NGRAM_SIMPLE
    assert small.in_mode(SpeculationMode.OFF).speculation is SpeculationMode.OFF
    started = plan_engine(installed_model, probe(), tuned(request, TUNING))
    assert started.options == plan_engine(installed_model, probe(), request).tuned(TUNING).options
