"""Coverage-guided fuzzing of the GGUF header check: `python -m tests.edge.packages.fuzz_gguf SECONDS [FOLDER]`.

Needs `atheris`, which is no dependency of the project. New inputs that reach new code go to FOLDER; the small set that
is worth keeping stands in `corpus` beside this file, and `test_gguf_fuzz.py` mutates it on every run of the suite.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from edge.memory import geometry
from edge.packages import gguf, model_file
from shared.errors import ModelCorrupt, TrustError, UnsupportedFormat

CORPUS = Path(__file__).with_name("corpus")
NAMES_FIELD_AND_OFFSET = re.compile(r"At byte \d+: ", re.DOTALL)


def check(data: bytes) -> bool:
    """Read `data` as a model file; False when it was refused, in the way a refusal has to be."""
    fd = os.memfd_create("fuzz")
    try:
        os.write(fd, data)
        try:
            gguf.read_header(fd)
        except (ModelCorrupt, UnsupportedFormat) as refused:
            assert NAMES_FIELD_AND_OFFSET.match(refused.message), refused.message
            assert refused.param
            return False
        try:
            model_file.inspect(fd)
        except TrustError as refused:
            assert refused.param
            return False
        return True
    finally:
        os.close(fd)


def main(arguments: list[str]) -> None:
    """Fuzz for the given time; a finding ends the process with its input in the current folder."""
    import atheris

    for module in (gguf, model_file, geometry):
        _instrument(module, atheris.instrument_func)
    found = Path(arguments[1]) if len(arguments) > 1 else Path("fuzz-gguf")
    found.mkdir(parents=True, exist_ok=True)
    limits = ["-max_len=4096", "-rss_limit_mb=512", "-timeout=2", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], f"-max_total_time={arguments[0]}", *limits, str(found), str(CORPUS)], check)
    atheris.Fuzz()


def _instrument(holder: object, instrument: Callable[..., object]) -> None:
    """Count the branches of every function and method that is written in `holder`."""
    home = getattr(holder, "__module__", getattr(holder, "__name__", ""))
    for name, value in list(vars(holder).items()):
        if getattr(value, "__module__", None) != home:
            continue
        if inspect.isclass(value):
            _instrument(value, instrument)
        elif inspect.isfunction(value):
            setattr(holder, name, instrument(value))


if __name__ == "__main__":
    main(sys.argv[1:])
