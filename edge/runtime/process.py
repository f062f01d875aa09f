"""The engine's own process: builds llama.cpp's server from one message on standard input and serves until told to end.

It is run by file name with the standard library and xllamacpp alone, so that nothing of the agent is loaded beside
native code. Protocol: one JSON line in (`options`, `model`, `draft`, `adapters`, `socket`, `secret`), one JSON line out
(`ready`, or `refused` with the kind of error); then standard input stays open for as long as the parent wants the
engine. Its end, or the parent's death, ends this process.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

REFUSED_EXIT = 3
_PR_SET_PDEATHSIG = 1
_ALL_LAYERS = 999


def main() -> None:
    """Serve until standard input ends."""
    _die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold prompts
    os.umask(0o077)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # native code prints to standard output too; that channel is for answers
    order = json.loads(sys.stdin.buffer.readline())
    try:
        server = _serve(order)
    except (RuntimeError, ValueError, ImportError, OSError) as error:
        sys.stderr.write(f"{error}\n")  # for the table of causes: what the loader of libraries says is nowhere else
        sys.stderr.flush()
        _answer(answers, {"refused": type(error).__name__})
        os._exit(REFUSED_EXIT)
    _answer(answers, {"ready": True})
    sys.stdin.buffer.read()
    # Never destroyed in order: with a request open, the server's destructor waits for it, without limit.
    del answers
    os._exit(0 if server else 1)


def _serve(order: dict[str, Any]) -> object:
    import xllamacpp as engine  # noqa: PLC0415 - errors of the native library are answers, not tracebacks

    options = order["options"]
    params = engine.CommonParams()
    params.model.path = order["model"]
    params.hostnames = [order["socket"]]
    params.api_keys = [order["secret"]]
    params.model_alias = {options["model_alias"]}
    # Loaded with scale 0: each request states what applies to it.
    params.lora_adapters = [engine.CommonAdapterLoraInfo(path, 0.0) for path in order["adapters"]]
    for name in (
        "n_ctx",
        "n_parallel",
        "n_batch",
        "n_ubatch",
        "cache_ram_mib",
        "sse_ping_interval",
        "sleep_idle_seconds",
    ):
        setattr(params, name, options[name])
    _compute(params, options)
    params.n_gpu_layers = options["n_gpu_layers"]
    params.tensor_buft_overrides = options["tensor_overrides"]
    kv_type = {
        "f16": engine.ggml_type.GGML_TYPE_F16,
        "q8_0": engine.ggml_type.GGML_TYPE_Q8_0,
        "q4_0": engine.ggml_type.GGML_TYPE_Q4_0,
    }[options["kv_type"]]
    params.cache_type_k = params.cache_type_v = kv_type
    flash = engine.llama_flash_attn_type
    params.flash_attn_type = (
        flash.LLAMA_FLASH_ATTN_TYPE_ENABLED if options["flash_attention"] else flash.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    load_mode = engine.llama_load_mode
    params.load_mode = (
        load_mode.LLAMA_LOAD_MODE_MMAP_MLOCK if options["lock_weights"] else load_mode.LLAMA_LOAD_MODE_MMAP
    )
    _pool(engine, params, options["pooling"])
    _speculate(engine, params, order)
    params.prefill_assistant = False  # a last assistant message is gone on with only where the request says so
    params.fit_params = False  # a dry-run load; the plan has decided already
    params.check_tensors = True  # else weights that are no numbers load and answer nonsense
    params.endpoint_metrics = True
    params.endpoint_props = False
    params.cache_idle_slots = options["cache_ram_mib"] > 0
    params.ui = False
    params.offline = True
    params.verbosity = 2  # errors, for the crash reason; nothing of a request
    return engine.Server(params)


def _compute(params: Any, options: dict[str, Any]) -> None:
    params.cpuparams.n_threads = options["n_threads"]
    params.cpuparams_batch.n_threads = options["n_threads_batch"]
    if not options["poll"]:  # for builds with the engine's own thread pool; OpenMP reads its environment
        params.cpuparams.poll = params.cpuparams_batch.poll = 0


def _pool(engine: Any, params: Any, pooling: str) -> None:
    if pooling:
        params.embedding = True
        params.pooling_type = getattr(engine.llama_pooling_type, f"LLAMA_POOLING_TYPE_{pooling.upper()}")


def _speculate(engine: Any, params: Any, order: dict[str, Any]) -> None:
    options = order["options"]
    if options["speculation"] == "off":
        return
    kind = "DRAFT_SIMPLE" if options["speculation"] == "draft" else options["speculation"].upper()
    params.speculative.types = [getattr(engine.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{kind}")]
    for length in filter(None, options["draft_lengths"].split(",")):
        name, _, tokens = length.partition("=")
        setattr(getattr(params.speculative, options["speculation"]), name, int(tokens))
    if options["speculation"] == "draft":
        draft = params.speculative.draft
        draft.mparams.path = order["draft"]
        draft.n_gpu_layers = 0
        if options["draft_device"]:
            draft.devices, draft.n_gpu_layers = options["draft_device"], _ALL_LAYERS
        draft.cpuparams.n_threads = options["n_threads"]
        draft.cpuparams_batch.n_threads = options["n_threads_batch"]


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies: also while native code holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _answer(stream: Any, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
