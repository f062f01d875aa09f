"""Compiles a grammar before the engine does: what it cannot enforce, or takes too long for, is refused by name.

The engine compiles it once more while every other client waits, so the time is bounded. A grammar whose schemas are
merged with each other is compiled in a process that the system ends at the limit, any other in a thread: its time
grows with its size, which is bounded. Verdicts are remembered, because clients send the same schema again and again.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from collections import OrderedDict
from enum import StrEnum
from pathlib import Path

from llguidance import LLMatcher

from edge.service.grammar import Grammar
from shared.errors import InvalidRequest

_PROGRAM = Path(__file__).with_name("grammar_process.py")
_MOST_BYTES = 256 * 1024
_KEPT = 256
_HANG_S = 60.0
"""By the clock: far more than the limit takes on a machine that is busy, because waiting is no fault of the schema."""


class _Verdict(StrEnum):
    GOOD = "good"
    UNSUPPORTED = "unsupported"
    TOO_COMPLEX = "too_complex"


_MESSAGES = {
    _Verdict.UNSUPPORTED: "A schema uses a keyword, a format or a pattern that this backend cannot enforce.",
    _Verdict.TOO_COMPLEX: "The schema is too complex to be enforced here: it combines too many alternatives.",
}
_CODES = {_Verdict.UNSUPPORTED: "unsupported_schema", _Verdict.TOO_COMPLEX: "schema_too_complex"}


class GrammarCheck:
    """`limit_s` is processor time for one grammar. All calls are made in one event loop."""

    def __init__(self, *, limit_s: float) -> None:
        self._limit_s = limit_s
        self._known: OrderedDict[bytes, _Verdict] = OrderedDict()
        self._one = asyncio.Lock()

    async def check(self, grammar: Grammar | None) -> None:
        """Return if the engine can enforce `grammar` in time.

        Raises:
            InvalidRequest: it cannot; `param` is the field that asked for it. The compiler's message quotes the
                schema, so it stays here.
        """
        if grammar is None:
            return
        verdict = await self._verdict(grammar)
        if verdict is not _Verdict.GOOD:
            raise InvalidRequest(_MESSAGES[verdict], param=grammar.param, code=_CODES[verdict])

    async def _verdict(self, grammar: Grammar) -> _Verdict:
        if len(grammar.text) > _MOST_BYTES:
            return _Verdict.TOO_COMPLEX
        key = hashlib.sha256(grammar.text.encode()).digest()
        async with self._one:  # so that many at once take no more than one core
            verdict = self._known.get(key)
            if verdict is None:
                verdict = await (self._apart(grammar.text) if grammar.combines else self._inside(grammar.text))
            self._known[key] = verdict
            self._known.move_to_end(key)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return verdict

    async def _inside(self, text: str) -> _Verdict:
        fault, took_s = await asyncio.to_thread(_compiled, text)
        if took_s > self._limit_s:
            return _Verdict.TOO_COMPLEX
        return _Verdict.UNSUPPORTED if fault else _Verdict.GOOD

    async def _apart(self, text: str) -> _Verdict:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(_PROGRAM),
            str(self._limit_s),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(_HANG_S):
                fault, _ = await process.communicate(text.encode())
        except TimeoutError:
            return _Verdict.TOO_COMPLEX
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            return _Verdict.TOO_COMPLEX
        return _Verdict.UNSUPPORTED if fault else _Verdict.GOOD


def _compiled(text: str) -> tuple[bool, float]:
    """Whether something is wrong with it, and the processor time that finding out took."""
    began_s = time.thread_time()
    fault = bool(LLMatcher.validate_grammar(text))
    return fault, time.thread_time() - began_s
