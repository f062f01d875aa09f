"""Compiles one grammar from standard input and says what is wrong with it, within limits of processor time and memory.

A process of its own, because the compiler cannot be interrupted: the system ends it when its time is used up. Run by
file name with the standard library and llguidance alone. Argument: seconds of processor time.
"""

from __future__ import annotations

import resource
import signal
import sys

_MEMORY_BYTES = 2 << 30


def main() -> None:
    """Exit status 0 and nothing on standard output: it compiles."""
    from llguidance import LLMatcher  # noqa: PLC0415 - loading it is not to count

    signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))  # its signal ends a process that does not ask for it
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(LLMatcher.validate_grammar(sys.stdin.read()))


if __name__ == "__main__":
    main()
