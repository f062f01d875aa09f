"""The words for an exit: a cause where one is known, and never what the engine itself wrote."""

from __future__ import annotations

import pytest

from edge.runtime.crash import reason_of_exit


@pytest.mark.parametrize(
    ("status", "tail", "reason"),
    [
        (-9, b"", "The engine ended with SIGKILL."),
        (-11, b"whatever", "The engine ended with SIGSEGV."),
        (-7, b"", "The engine ended with SIGBUS."),
        (-200, b"", "The engine ended with signal 200."),
        (0, b"", "The engine ended with exit status 0."),
        (
            -6,
            b"/build/llama.cpp/common/common.cpp:2245: get_sub_batch: failed to add token 2\n",
            "The engine ended with SIGABRT: native assertion at common.cpp:2245.",
        ),
        (
            -6,
            b"/x/ggml/src/ggml.c:3302: GGML_ASSERT(a->ne[2] == b->ne[0]) failed\n",
            "The engine ended with SIGABRT: native assertion at ggml.c:3302.",
        ),
        (
            3,
            b"E llama_model_load: error loading model: tensor 'x' data is not within the file bounds\n"
            b"E srv: failed to load model, '/dev/fd/7'\n",
            "The engine ended with exit status 3: the model file is shorter than its header says.",
        ),
        (3, b"libllama.so: failed to map segment from shared object\n", "The engine ended with exit status 3: "
         "memory could not be allocated."),
        (3, b"ggml_aligned_malloc: failed to allocate 9 MB", "The engine ended with exit status 3: "
         "memory could not be allocated."),
    ],
)  # fmt: skip
def test_known_endings(status: int, tail: bytes, reason: str) -> None:
    assert reason_of_exit(status, tail) == reason


@pytest.mark.parametrize("status", [-6, 3, 1])
def test_lg_01_what_the_engine_wrote_is_not_repeated(status: int) -> None:
    tail = b"error: template failed near 'canary-4711'; sampling.cpp:12: GGML_ASSERT(canary-4711)\n"
    assert "canary" not in reason_of_exit(status, tail)
