"""Which units runtimes see: the real ones here, and what others would answer."""

from __future__ import annotations

import pytest

from edge.devices.delegation import DelegationKind
from edge.devices.runtimes import RuntimeReport, RuntimeState, ask_runtimes, report_of
from edge.devices.unit import UnitKind


def test_the_runtimes_of_this_machine() -> None:
    found = {report.name: report for report in ask_runtimes()}
    assert set(found) == {"llama.cpp", "onnxruntime", "executorch"}
    assert found["llama.cpp"].state is RuntimeState.PRESENT
    assert UnitKind.CPU in {unit.kind for unit in found["llama.cpp"].units}
    # The installed onnxruntime lists a provider that sends tensors elsewhere; it is no unit of this device.
    assert all("Azure" not in unit.name for unit in found["onnxruntime"].units)


def test_a_runtime_that_hangs_is_an_answer() -> None:
    assert {report.state for report in ask_runtimes(limit_s=0.001)} == {RuntimeState.FAILED}


def test_gpus_and_npus_are_told_apart() -> None:
    answer = {
        "version": "1",
        "units": [
            {"name": "CUDA0", "description": "RTX", "type": "gpu", "memory_bytes": 8 << 30},
            {"name": "Vulkan0", "description": "780M", "type": "igpu", "memory_bytes": 0},
            {"name": "BLAS", "description": "", "type": "accel"},
            {"name": "RPC0", "description": "", "type": "meta"},
        ],
    }
    units = report_of("llama.cpp", answer).units
    assert [(unit.name, unit.kind, unit.memory_bytes) for unit in units] == [
        ("CUDA0", UnitKind.GPU, 8 << 30),
        ("Vulkan0", UnitKind.GPU, None),
        ("BLAS", UnitKind.CPU, None),
    ]
    names = ("QNNExecutionProvider", "TensorrtExecutionProvider", "AzureExecutionProvider", "NewExecutionProvider")
    units = report_of("onnxruntime", {"units": [{"name": name} for name in names]}).units
    assert [(unit.name, unit.kind, unit.delegation) for unit in units] == [
        ("QNNExecutionProvider", UnitKind.NPU, DelegationKind.COMPILED),
        ("TensorrtExecutionProvider", UnitKind.GPU, DelegationKind.COMPILED),
    ]
    units = report_of("executorch", {"units": [{"name": "XnnpackBackend"}, {"name": "QnnBackend"}]}).units
    assert [unit.kind for unit in units] == [UnitKind.CPU, UnitKind.NPU]


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({"absent": True}, RuntimeState.ABSENT),
        ([], RuntimeState.FAILED),
        (None, RuntimeState.FAILED),
        ({"units": ["x", 3]}, RuntimeState.PRESENT),
    ],
)
def test_strange_answers(answer: object, state: RuntimeState) -> None:
    report = report_of("onnxruntime", answer)
    assert isinstance(report, RuntimeReport)
    assert (report.state, report.units) == (state, ())
