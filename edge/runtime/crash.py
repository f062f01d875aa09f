"""Says in words why an engine process ended, from its exit status and what it last wrote to standard error.

Only phrases from this table and source positions of native assertions are passed on: the engine's own messages
could repeat parts of a request or of a template.
"""

from __future__ import annotations

import re
import signal

_PHRASES: tuple[tuple[bytes, str], ...] = (
    (b"data is not within the file bounds", "the model file is shorter than its header says"),
    (b"tensor has invalid data", "the weights hold values that are not numbers"),
    (b"has invalid data", "the weights hold values that are not numbers"),
    (b"unknown model architecture", "the engine does not know the model's architecture"),
    (b"wrong shape", "a tensor has the wrong shape"),
    (b"missing tensor", "a tensor is missing"),
    (b"failed to allocate", "memory could not be allocated"),
    (b"bad_alloc", "memory could not be allocated"),
    (b"Cannot allocate memory", "memory could not be allocated"),
    (b"failed to map segment", "memory could not be allocated"),
    (b"MemoryError", "memory could not be allocated"),
    (b"Resource temporarily unavailable", "no memory or no threads were left"),
    (b"error loading vocabulary", "the vocabulary cannot be read"),
    (b"chat template", "the chat template cannot be used"),
    (b"libgomp", "the system library libgomp.so.1 is missing"),
    (b"No module named 'xllamacpp'", "the engine library xllamacpp is not installed"),
    (b"No module named 'onnxruntime_genai'", "the engine library onnxruntime-genai is not installed"),
    (b"couldn't bind", "its socket could not be opened"),
    (b"failed to load model", "the engine refused the model file"),
)
_SOURCE_POSITION = re.compile(rb"([A-Za-z0-9_.-]+\.(?:c|cc|cpp|cu|h|hpp)):(\d+): ")


def reason_of_exit(exit_status: int, stderr_tail: bytes) -> str:
    """Words for an exit status as `subprocess` gives it (negative for a signal)."""
    end = _signal_name(-exit_status) if exit_status < 0 else f"exit status {exit_status}"
    cause = _assertion(stderr_tail) if exit_status == -signal.SIGABRT else None
    cause = cause or next((words for phrase, words in _PHRASES if phrase in stderr_tail), None)
    return f"The engine ended with {end}{f': {cause}' if cause else ''}."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _assertion(stderr_tail: bytes) -> str | None:
    """The place of the native assertion that aborted the process: a source position, never its message."""
    found = _SOURCE_POSITION.search(stderr_tail)
    return f"native assertion at {found[1].decode()}:{found[2].decode()}" if found else None
