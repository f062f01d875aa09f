"""Says on standard output which units one runtime sees: one JSON object, in a process of its own.

A runtime is native code with drivers below it: asked here, it cannot take anything else down. Run by file name with the
standard library and that runtime alone.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from typing import Any


def main() -> None:
    """Answer for the runtime that the command line names: `{"version", "units": [{"name", "description", …}]}`."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # native code prints to standard output too; that channel is for the answer
    try:
        answer = _RUNTIMES[sys.argv[1]]()
    except ImportError:
        answer = {"absent": True}
    answers.write(json.dumps(answer))
    answers.flush()
    os._exit(0)  # destructors of half-loaded drivers are none of our business


def _llama_cpp() -> dict[str, Any]:
    import xllamacpp as engine  # noqa: PLC0415 - absent is an answer

    units = [
        {
            "name": device["name"],
            "description": device["description"],
            "type": device["type"].name.rpartition("_")[2].lower(),
            "memory_bytes": device["memory_total"],
        }
        for device in engine.get_device_info()
    ]
    return {"version": _version("xllamacpp"), "units": units, "features": engine.get_system_info()}


def _onnxruntime() -> dict[str, Any]:
    import onnxruntime  # noqa: PLC0415 - absent is an answer

    units = [{"name": name} for name in onnxruntime.get_available_providers()]
    return {"version": onnxruntime.__version__, "units": units}


def _executorch() -> dict[str, Any]:
    from executorch.runtime import Runtime  # noqa: PLC0415 - absent is an answer

    names = Runtime.get().backend_registry.registered_backend_names
    return {"version": _version("executorch"), "units": [{"name": name} for name in names]}


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


_RUNTIMES = {"llama.cpp": _llama_cpp, "onnxruntime": _onnxruntime, "executorch": _executorch}

if __name__ == "__main__":
    main()
