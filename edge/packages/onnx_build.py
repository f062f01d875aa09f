"""Builds an ONNX package from a safetensors checkpoint with the runtime's own builder, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

from edge.packages.progress import Progress, ProgressListener, Step
from edge.packages.sizes import file_sizes
from shared.errors import ModelCorrupt, NotFound, SettingsError, UnsupportedArchitecture
from shared.settings import environment

PRECISION = "int4"
_TOOLS = ("onnxruntime_genai", "torch", "transformers", "onnx", "onnx_ir")
_REMEDY = "pip install 'isthmus[edge,onnx,onnx-convert]'"
_POLL_S = 0.2
_CONFIG_FILES = ("config.json", "tokenizer_config.json")
_CAUSES = (
    (
        "No space left on device",
        SettingsError("The disk is full; nothing was installed.", param="disk", code="disk_full"),
    ),
    ("MemoryError", SettingsError("There is not enough memory to build the package.", param="memory")),
    (
        "is not currently supported",
        UnsupportedArchitecture("The builder does not know this architecture.", param="type"),
    ),
)
_LOG_TAIL_BYTES = 1 << 16


def require_tools() -> None:
    """Refuse at once where the build tools are not installed.

    Raises:
        SettingsError: one of them is missing; names it and how to get it.
    """
    missing = [tool for tool in _TOOLS if importlib.util.find_spec(tool) is None]
    if missing:
        raise SettingsError(
            f"Building ONNX packages needs {', '.join(missing)}, which is not installed: {_REMEDY}",
            param="onnx-convert",
        )


def check_checkpoint(checkpoint: Path) -> None:
    """Refuse what is no safetensors checkpoint, or would have the builder run code that comes with it.

    Raises:
        NotFound: there is no such folder.
        ModelCorrupt: weights or configuration are missing, or the checkpoint brings code.
    """
    if not checkpoint.is_dir():
        raise NotFound(f"{checkpoint} is no folder with a checkpoint.", param="checkpoint")
    if not (checkpoint / "config.json").is_file() or not list(checkpoint.glob("*.safetensors")):
        raise ModelCorrupt(f"{checkpoint.name} has no config.json with *.safetensors beside it.", param="checkpoint")
    if list(checkpoint.rglob("*.py")):
        raise ModelCorrupt(f"{checkpoint.name} brings Python code, which is not run.", param="checkpoint")
    for name in _CONFIG_FILES:
        if (checkpoint / name).is_file() and "auto_map" in _object(checkpoint / name):
            raise ModelCorrupt(f"{name} names code of its own (auto_map), which is not run.", param="auto_map")


def build(checkpoint: Path, work: Path, progress: ProgressListener) -> Path:
    """Build the package in the empty folder `work`, which the caller removes; the folder with its files.

    Raises:
        SettingsError: tools are missing, or disk or memory do not suffice.
        UnsupportedArchitecture: the builder does not know the model.
        ModelCorrupt: the builder failed; the last line that it printed is given.
    """
    require_tools()
    check_checkpoint(checkpoint)
    out, cache, log = work / "package", work / "cache", work / "build.log"
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", "checkpoint", "-i", str(checkpoint),
               "-o", str(out), "-c", str(cache), "-p", PRECISION, "-e", "cpu",
               "--extra_options", "hf_remote=false"]  # fmt: skip
    variables = {**environment(), "HF_HUB_OFFLINE": "1", "ORT_DISABLE_TELEMETRY": "1", "LC_ALL": "C.UTF-8"}
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - fixed program, arguments of our own
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=variables
        )
        try:
            while process.poll() is None:
                progress(Progress(Step.BUILD, sum(file_sizes(out))))
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:  # interrupted: it must not go on writing into a folder that goes away
                process.kill()
                process.wait()
    if process.returncode != 0 or not (out / "genai_config.json").is_file():
        raise _failure(log, process.returncode)
    return out


def _failure(log: Path, status: int) -> Exception:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        tail = file.read().decode(errors="replace")
    for phrase, error in _CAUSES:
        if phrase in tail:
            return error
    return ModelCorrupt(f"The builder could not read this checkpoint (exit status {status}).", param="checkpoint")


def _object(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        raise ModelCorrupt(f"{path.name} is not JSON.", param=path.name) from None
    return value if isinstance(value, dict) else {}
