"""What the plan of operators asks for reaches the engine: layers, exceptions, the draft's device."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.devices.probe import probe
from edge.packages.package import Package
from edge.runtime.offload import offloaded
from edge.runtime.options import EngineOptions
from edge.runtime.plan import PlanRequest, plan_engine
from shared.errors import SettingsError

_BOARD = """
name: board
memory: {available: 8GiB}
units:
  - {name: cpu, kind: cpu, cores: 4, flops_per_s: 50e9, bytes_per_s: 10e9}
  - name: gpu
    kind: gpu
    flops_per_s: 60e9
    bytes_per_s: 12e9
    delegation: {kind: per_operator, operators: [norm, qkv, rope, attention, feed_forward, head]}
  - {name: npu, kind: npu, flops_per_s: 50e12, bytes_per_s: 500e9, delegation: {kind: whole_graph}}
"""


@pytest.fixture
def board(tmp_path: Path) -> str:
    """A GPU that lacks one kind of operator, and an NPU that would be the fastest."""
    path = tmp_path / "board.yaml"
    path.write_text(_BOARD)
    return str(path)


def test_layers_exceptions_and_the_drafts_device_follow_from_the_plan(installed_model: Package, board: str) -> None:
    """By the engine's own name for the GPU; the NPU, which it cannot drive, is no part of the plan."""
    request = offloaded(PlanRequest(), installed_model, board, ["Vulkan0", "Vulkan1"])
    assert request.draft_device == "Vulkan0"
    assert request.gpu_layers == 31
    ((pattern, buffer),) = request.tensor_overrides
    assert ("attn_output" in pattern, buffer) == (True, "CPU")
    options = plan_engine(installed_model, probe(), request).options
    wire = options.wire()
    assert (wire["n_gpu_layers"], wire["draft_device"]) == (31, "Vulkan0")
    assert wire["tensor_overrides"] == f"{pattern}=CPU"


def test_a_gpu_that_the_engine_does_not_see_is_no_part_of_the_plan(installed_model: Package, board: str) -> None:
    request = offloaded(PlanRequest(), installed_model, board, [])
    assert (request.gpu_layers, request.tensor_overrides, request.draft_device) == (0, (), None)


def test_without_a_profile_the_engine_does_as_it_does_by_itself(installed_model: Package) -> None:
    assert plan_engine(installed_model, probe(), PlanRequest()).options.wire()["n_gpu_layers"] == -1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu_layers", -1),
        ("gpu_layers", True),
        ("tensor_overrides", (("a,b", "CPU"),)),
        ("tensor_overrides", (("a=b", "CPU"),)),
        ("tensor_overrides", (("a", "CPU,b=GPU"),)),
        ("tensor_overrides", (("", "CPU"),)),
        ("tensor_overrides", (("a", "CPU"),) * 17),
        ("draft_device", ""),
        ("draft_device", "a,b"),
    ],
)
def test_what_would_mean_something_else_to_the_engine_is_refused(name: str, value: object) -> None:
    good = {"model_alias": "m", "context_tokens": 512, "slots": 1, "threads": 1, "threads_batch": 1}
    with pytest.raises(SettingsError) as refused:
        EngineOptions(**{**good, name: value})  # type: ignore[arg-type]
    assert refused.value.param == name
