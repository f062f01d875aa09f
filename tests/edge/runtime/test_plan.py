"""The static plan: what a package gets on a device, before any process is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edge.devices.power import Power, PowerSource
from edge.devices.probe import DeviceFacts
from edge.memory.capacity import MIB
from edge.memory.kv import KvType
from edge.packages.library import Library
from edge.packages.package import Package
from edge.runtime.plan import PlanRequest, plan_engine
from shared.errors import InsufficientMemory, SettingsError
from shared.testing.models import write_gguf

DEVICE = DeviceFacts(
    machine="x86_64",
    cpu_model="test",
    cpu_features=frozenset(),
    cores_total=4,
    cores_usable=4,
    memory_total_bytes=8 << 30,
    memory_available_bytes=8 << 30,
    power=Power(PowerSource.MAINS),
)


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """A model with heads of 128 and a trained context of 131,072 tokens."""
    path = write_gguf(tmp_path / "model.gguf", layers=32, heads=32, kv_heads=8, head_length=128, context=131072)
    return Library(tmp_path / "store").import_path(path, "large")


def test_one_core_is_left_while_decoding_and_none_while_reading_a_prompt(package: Package) -> None:
    options = plan_engine(package, DEVICE, PlanRequest()).options
    assert (options.threads, options.threads_batch) == (3, 4)
    single = plan_engine(package, replace(DEVICE, cores_usable=1), PlanRequest()).options
    assert (single.threads, single.threads_batch) == (1, 1)
    chosen = plan_engine(package, DEVICE, PlanRequest(threads=2, threads_batch=3)).options
    assert (chosen.threads, chosen.threads_batch) == (2, 3)


def test_a_machine_of_more_cores_than_an_engine_has_threads_starts_one(package: Package) -> None:
    options = plan_engine(package, replace(DEVICE, cores_usable=384), PlanRequest()).options
    assert options.thread_counts == (256, 256)


def test_deterministic_plans_keep_the_micro_batch_below_64(package: Package) -> None:
    assert plan_engine(package, DEVICE, PlanRequest()).options.ubatch_tokens == 63
    assert plan_engine(package, DEVICE, PlanRequest(deterministic=False)).options.ubatch_tokens == 128


def test_a_batch_is_read_in_whole_micro_batches(package: Package) -> None:
    """A rest of two tokens would take as long as two tokens of output."""
    for wanted, planned in ((128, 126), (63, 63), (40, 40), (32, 32), (512, 504)):
        assert plan_engine(package, DEVICE, PlanRequest(batch_tokens=wanted)).options.batch_tokens == planned


def test_kv_03_an_unset_context_fits_the_memory_that_is_free(package: Package) -> None:
    device = replace(DEVICE, memory_available_bytes=(2 << 30) + package.manifest.model_file.size_bytes)
    plan = plan_engine(package, device, PlanRequest())
    assert 2048 <= plan.options.context_tokens <= 14336
    assert plan.capacity.total_bytes <= device.memory_available_bytes
    with pytest.raises(InsufficientMemory) as refused:
        plan_engine(package, replace(DEVICE, memory_available_bytes=64 * MIB), PlanRequest())
    assert refused.value.free_bytes == 64 * MIB
    assert str(refused.value.needed_bytes) in refused.value.message


def test_a_quantised_cache_needs_head_sizes_that_divide(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "odd.gguf", heads=4, kv_heads=2, embedding=64)
    package = Library(tmp_path / "store").import_path(path, "odd")
    with pytest.raises(SettingsError) as refused:
        plan_engine(package, DEVICE, PlanRequest(kv_type=KvType.Q8_0))
    assert refused.value.param == "kv_type"


@pytest.mark.parametrize(("deterministic", "tokens"), [(True, 63), (False, 128)])
def test_unmeasured_a_batch_is_one_micro_batch(package: Package, deterministic: bool, tokens: int) -> None:
    """Streams beside a prompt wait for a batch of it, and nobody knows yet for how long."""
    options = plan_engine(package, DEVICE, PlanRequest(deterministic=deterministic)).options
    assert (options.batch_tokens, options.ubatch_tokens) == (tokens, tokens)


@pytest.mark.parametrize(
    ("threads", "ratio", "batch"),
    [
        (4, 1.0, (252, 63)),
        (4, 0.5, (126, 63)),
        (4, 0.75, (189, 63)),
        (4, 0.3, (63, 63)),
        (9, 0.2, (32, 32)),  # the least that an engine takes
    ],
)
def test_fewer_prompt_threads_read_smaller_batches(
    package: Package, threads: int, ratio: float, batch: tuple[int, int]
) -> None:
    """So that a warm device holds the streams beside a prompt up no longer than a cool one."""
    tokens = 252 if threads == 4 else 63
    request = PlanRequest(threads=threads, threads_batch=threads, batch_tokens=tokens)
    full = plan_engine(package, DEVICE, request)
    warm = full.on_threads_of(full, ratio)
    assert (warm.options.wire()["n_batch"], warm.options.wire()["n_ubatch"]) == batch
    again = warm.on_threads_of(full, 0.5).on_threads_of(full, 1.0)
    assert again.options.wire() == full.options.wire()


@pytest.mark.parametrize(("name", "value"), [("slots", 0), ("context_tokens", 1), ("batch_tokens", 0)])
def test_a_request_with_dangerous_values_is_refused(name: str, value: int) -> None:
    with pytest.raises(SettingsError) as refused:
        PlanRequest(**{name: value})
    assert refused.value.param == name
