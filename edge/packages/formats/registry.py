"""The table of formats: what a package is, what runs it, and whether that is here."""

from __future__ import annotations

from edge.packages.formats import coreml, executorch, gguf_model, mlc, onnx_package
from edge.packages.formats.entry import Format, Runtime
from edge.packages.formats.files import Files
from edge.packages.manifest import MODEL_FILE, WHOLE_FOLDER
from shared.errors import ModelCorrupt, UnsupportedArchitecture

_ENTRIES = (
    Format(
        name="gguf",
        title="GGUF",
        entry=MODEL_FILE,
        runtime=Runtime("llama.cpp", "xllamacpp", serves=True, remedy="pip install 'isthmus[edge]'"),
        recognise=gguf_model.recognise,
        inspect=gguf_model.inspect,
    ),
    Format(
        name="onnx",
        title="ONNX",
        entry=WHOLE_FOLDER,
        runtime=Runtime(
            "onnxruntime-genai", "onnxruntime_genai", serves=True, remedy="pip install 'isthmus[edge,onnx]'"
        ),
        recognise=onnx_package.recognise,
        inspect=onnx_package.inspect,
    ),
    Format(
        name="executorch",
        title="ExecuTorch",
        entry=WHOLE_FOLDER,
        runtime=Runtime("ExecuTorch", "executorch", serves=False, remedy="run it in an ExecuTorch application"),
        recognise=executorch.recognise,
        inspect=executorch.inspect,
    ),
    Format(
        name="coreml",
        title="Core ML",
        entry=WHOLE_FOLDER,
        runtime=Runtime(
            "Core ML", "coremltools", serves=False, remedy="run it on an Apple device", systems=("darwin",)
        ),
        recognise=coreml.recognise,
        inspect=coreml.inspect,
    ),
    Format(
        name="mlc",
        title="MLC",
        entry=WHOLE_FOLDER,
        runtime=Runtime("MLC LLM", "mlc_llm", serves=False, remedy="run it in an MLC application"),
        recognise=mlc.recognise,
        inspect=mlc.inspect,
    ),
)
FORMATS: dict[str, Format] = {entry.name: entry for entry in _ENTRIES}


def format_of(files: Files) -> Format:
    """The entry whose format `files` have.

    Raises:
        ModelCorrupt: none knows them.
    """
    for entry in FORMATS.values():
        if entry.recognise(files):
            return entry
    known = ", ".join(entry.title for entry in FORMATS.values())
    raise ModelCorrupt(f"This is no package of a known format ({known}).", param="format")


def require_served(entry: Format) -> None:
    """Refuse a format for which this agent has no engine.

    Raises:
        UnsupportedArchitecture: it is recognised and whole, but runs elsewhere.
    """
    if not entry.runtime.serves:
        raise UnsupportedArchitecture(
            f"This is a whole {entry.title} package; this agent has no engine for it: {entry.runtime.remedy}.",
            param="format",
        )
