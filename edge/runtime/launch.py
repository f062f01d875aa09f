"""How the process of each kind of package is started: its program, and how the verified files are handed to it.

Files are handed over as open descriptors, so what was checked is what is loaded. A package that is loaded as a folder
gets a private one: links to its descriptors, and a configuration that is written anew from the checked fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from edge.packages.formats.files import Files
from edge.packages.formats.onnx_config import CONFIG_FILE
from edge.packages.formats.onnx_package import config_of, engine_files

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Handed:
    """What the process is told to load, and the descriptors that it must inherit."""

    model: str
    descriptors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One kind of engine process. `hand_over` may fill the private, empty folder that it is given."""

    program: Path
    environment: Mapping[str, str]
    hand_over: Callable[[Files, Mapping[str, object], Path], Handed]


def _one_file(files: Files, options: Mapping[str, object], folder: Path) -> Handed:
    del options, folder
    (name,) = files.names
    descriptor = files.descriptor(name)
    return Handed(f"/dev/fd/{descriptor}", (descriptor,))


def _onnx_folder(files: Files, options: Mapping[str, object], folder: Path) -> Handed:
    context_tokens, threads = options["context_tokens"], options["threads"]
    if not isinstance(context_tokens, int) or not isinstance(threads, int):
        raise TypeError("the options are not those of an ONNX engine")
    config = config_of(files).for_engine(context_tokens=context_tokens, threads=threads)
    (folder / CONFIG_FILE).write_bytes(orjson.dumps(config))
    descriptors = {name: files.descriptor(name) for name in engine_files(files)}
    for name, descriptor in descriptors.items():
        # Followed by the child, where the same number is the same open file.
        (folder / name).symlink_to(f"/proc/self/fd/{descriptor}")
    return Handed(str(folder), tuple(descriptors.values()))


LAUNCHES: Mapping[str, Launch] = {
    "gguf": Launch(
        program=_HERE / "process.py",
        # A native abort otherwise starts a debugger, which takes seconds and writes to standard output.
        environment={"GGML_NO_BACKTRACE": "1"},
        hand_over=_one_file,
    ),
    "onnx": Launch(
        program=_HERE / "onnx_process.py",
        # In the environment from the start: the runtime's own switch comes too late and leaves part of it on.
        environment={"ORT_DISABLE_TELEMETRY": "1"},
        hand_over=_onnx_folder,
    ),
}
"""By the format of the package."""
