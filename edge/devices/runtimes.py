"""Lists the units that the installed runtimes see: llama.cpp's backends, ONNX execution providers, ExecuTorch backends.

Each runtime is asked in a process of its own, with a limit on its time: a driver that hangs or aborts is an answer too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from edge.devices.delegation import DelegationKind
from edge.devices.unit import UnitKind
from shared.settings import environment

LLAMA_CPP = "llama.cpp"
RUNTIMES = (LLAMA_CPP, "onnxruntime", "executorch")
_PROGRAM = Path(__file__).with_name("runtimes_process.py")
_LIMIT_S = 60.0
_FIELD_LIMIT = 200


class RuntimeState(StrEnum):
    """What came of asking a runtime."""

    PRESENT = "present"
    ABSENT = "not_installed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RuntimeUnit:
    """One unit through one runtime. Memory where the runtime says it."""

    runtime: str
    name: str
    kind: UnitKind
    delegation: DelegationKind
    description: str = ""
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RuntimeReport:
    """One runtime and what it sees."""

    name: str
    state: RuntimeState
    version: str | None = None
    units: tuple[RuntimeUnit, ...] = ()


# By ggml_backend_dev_type. BLAS and the like (accel) are the processor's own.
_LLAMA_TYPES = {"cpu": UnitKind.CPU, "accel": UnitKind.CPU, "gpu": UnitKind.GPU, "igpu": UnitKind.GPU}

# Source: onnxruntime.ai, "Execution Providers", and executorch documentation, "Backends". What compiles a partition for
# fixed shapes counts as compiled. `AzureExecutionProvider` sends tensors to a remote service: no unit of this device.
_PROVIDERS = {
    "CPUExecutionProvider": (UnitKind.CPU, DelegationKind.PER_OPERATOR),
    "XnnpackExecutionProvider": (UnitKind.CPU, DelegationKind.PER_OPERATOR),
    "DnnlExecutionProvider": (UnitKind.CPU, DelegationKind.PER_OPERATOR),
    "ACLExecutionProvider": (UnitKind.CPU, DelegationKind.PER_OPERATOR),
    "CUDAExecutionProvider": (UnitKind.GPU, DelegationKind.PER_OPERATOR),
    "ROCMExecutionProvider": (UnitKind.GPU, DelegationKind.PER_OPERATOR),
    "MIGraphXExecutionProvider": (UnitKind.GPU, DelegationKind.COMPILED),
    "TensorrtExecutionProvider": (UnitKind.GPU, DelegationKind.COMPILED),
    "NvTensorRTRTXExecutionProvider": (UnitKind.GPU, DelegationKind.COMPILED),
    "DmlExecutionProvider": (UnitKind.GPU, DelegationKind.PER_OPERATOR),
    "WebGpuExecutionProvider": (UnitKind.GPU, DelegationKind.PER_OPERATOR),
    "OpenVINOExecutionProvider": (UnitKind.NPU, DelegationKind.COMPILED),
    "QNNExecutionProvider": (UnitKind.NPU, DelegationKind.COMPILED),
    "CoreMLExecutionProvider": (UnitKind.NPU, DelegationKind.COMPILED),
    "NnapiExecutionProvider": (UnitKind.NPU, DelegationKind.COMPILED),
    "RknpuExecutionProvider": (UnitKind.NPU, DelegationKind.COMPILED),
    "VitisAIExecutionProvider": (UnitKind.NPU, DelegationKind.COMPILED),
    "CANNExecutionProvider": (UnitKind.NPU, DelegationKind.COMPILED),
}
_BACKENDS = {
    "XnnpackBackend": (UnitKind.CPU, DelegationKind.COMPILED),
    "VulkanBackend": (UnitKind.GPU, DelegationKind.COMPILED),
    "CudaBackend": (UnitKind.GPU, DelegationKind.COMPILED),
    "MetalBackend": (UnitKind.GPU, DelegationKind.COMPILED),
    "MPSBackend": (UnitKind.GPU, DelegationKind.COMPILED),
    "CoreMLBackend": (UnitKind.NPU, DelegationKind.WHOLE_GRAPH),
    "QnnBackend": (UnitKind.NPU, DelegationKind.COMPILED),
    "NeuropilotBackend": (UnitKind.NPU, DelegationKind.COMPILED),
    "OpenvinoBackend": (UnitKind.NPU, DelegationKind.COMPILED),
    "EthosUBackend": (UnitKind.NPU, DelegationKind.COMPILED),
}
_TABLES = {"onnxruntime": _PROVIDERS, "executorch": _BACKENDS}


def ask_runtimes(limit_s: float = _LIMIT_S) -> tuple[RuntimeReport, ...]:
    """What every known runtime answers, side by side, each within `limit_s`."""
    with ThreadPoolExecutor(len(RUNTIMES)) as pool:
        return tuple(pool.map(lambda name: ask_runtime(name, limit_s), RUNTIMES))


def report_of(name: str, answer: Any) -> RuntimeReport:
    """The report that a runtime's own `answer` amounts to. Units of kinds that are not known here are left out."""
    if not isinstance(answer, dict):
        return RuntimeReport(name, RuntimeState.FAILED)
    if answer.get("absent"):
        return RuntimeReport(name, RuntimeState.ABSENT)
    units = (_unit(name, raw) for raw in answer.get("units", ()) if isinstance(raw, dict))
    return RuntimeReport(
        name, RuntimeState.PRESENT, answer.get("version"), tuple(unit for unit in units if unit is not None)
    )


def ask_runtime(name: str, limit_s: float = _LIMIT_S) -> RuntimeReport:
    """What one of `RUNTIMES` answers within `limit_s`."""
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter and a program of ours
            [sys.executable, "-P", str(_PROGRAM), name],
            env={**environment(), "ORT_DISABLE_TELEMETRY": "1", "GGML_NO_BACKTRACE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
        return report_of(name, json.loads(done.stdout))
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return RuntimeReport(name, RuntimeState.FAILED)


def _unit(runtime: str, raw: dict[str, Any]) -> RuntimeUnit | None:
    name = str(raw.get("name", ""))[:_FIELD_LIMIT]
    if runtime == LLAMA_CPP:
        kind = _LLAMA_TYPES.get(str(raw.get("type")))
        known = None if kind is None else (kind, DelegationKind.PER_OPERATOR)
    else:
        known = _TABLES[runtime].get(name)
    if known is None:
        return None
    memory = raw.get("memory_bytes")
    return RuntimeUnit(
        runtime=runtime,
        name=name,
        kind=known[0],
        delegation=known[1],
        description=str(raw.get("description", ""))[:_FIELD_LIMIT],
        memory_bytes=memory if isinstance(memory, int) and memory > 0 else None,
    )
