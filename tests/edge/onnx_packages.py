"""The default model as an ONNX package: from the cache of earlier runs, else built through the whole chain."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge.packages.library import Library
from edge.packages.onnx_build import require_tools
from edge.packages.package import Package
from shared.errors import SettingsError

NAME = "smollm2-onnx"
_CACHE_VARIABLE = "ISTHMUS_TEST_CACHE"


def install_onnx(gguf: Package, work: Path) -> Package:
    """Install it into a store of its own below `work`; skips where runtime or build tools are absent."""
    if importlib.util.find_spec("onnxruntime_genai") is None:
        pytest.skip("onnxruntime-genai is not installed (extra onnx)")
    library = Library(work / "models")
    cached = Path(os.environ[_CACHE_VARIABLE]) / "onnx-int4-2" if _CACHE_VARIABLE in os.environ else None
    if cached is not None and (cached / "genai_config.json").is_file():
        return library.import_path(cached, NAME)
    try:
        require_tools()
    except SettingsError as missing:
        pytest.skip(f"{missing.message} (extra onnx-convert)")
    checkpoint = work / "checkpoint"
    converted = [sys.executable, "-m", "cloud.conversion", str(gguf.model_path), str(checkpoint)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"}
    subprocess.run(converted, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    package = library.convert(checkpoint, NAME)
    shutil.rmtree(checkpoint)
    if cached is not None:
        shutil.copytree(package.folder, cached, ignore=shutil.ignore_patterns("manifest.*"))
    return package
