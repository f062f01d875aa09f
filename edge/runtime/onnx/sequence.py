"""One sequence from its prompt to its finish reason, advanced one bounded step at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from llguidance import LLMatcher

from edge.runtime.onnx.sampling import Mask, Row, Sampler, SamplingRules, log_probabilities
from edge.runtime.onnx.text import TextStream, Vocabulary


class State(Protocol):
    """Keys and values of one sequence in the runtime."""

    def append(self, tokens: list[int]) -> None:
        """Compute `tokens`."""

    def logits(self) -> Row:
        """Logits after the last token."""


@dataclass(frozen=True, slots=True)
class Progress:
    """So much of the prompt is computed."""

    processed_tokens: int
    total_tokens: int
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class Output:
    """Text that is certain, with the log-probabilities of its tokens when they were asked for."""

    text: str
    logprobs: list[dict[str, Any]] | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The end: `stop` or `length`, with counts and times."""

    reason: str
    prompt_tokens: int
    prompt_ms: float
    output_tokens: int
    output_ms: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The runtime failed on this sequence."""


Event = Progress | Output | Finished | Failed


@dataclass(slots=True)
class Job:
    """What one choice of a request asks for. `emit` is called in the thread that computes."""

    index: int
    prompt: list[int]
    output_limit_tokens: int
    rules: SamplingRules
    emit: Callable[[int, Event], None]
    stops: tuple[str, ...] = ()
    grammar: str | None = None
    top_logprobs: int | None = None
    cancelled: bool = field(default=False, init=False)

    @property
    def limit_tokens(self) -> int:
        """Tokens that the cache must hold."""
        return len(self.prompt) + self.output_limit_tokens


class Sequence:
    """A job that runs."""

    def __init__(
        self, job: Job, state: State, vocabulary: Vocabulary, *, end_tokens: frozenset[int], prefill_tokens: int
    ) -> None:
        self.job = job
        self._state = state
        self._vocabulary = vocabulary
        self._end_tokens = end_tokens
        self._prefill_tokens = prefill_tokens
        self._sampler = Sampler(job.rules, job.prompt)
        self._matcher = LLMatcher(vocabulary.native, job.grammar) if job.grammar is not None else None
        self._stream = TextStream(job.stops)
        self._pending_logprobs: list[dict[str, Any]] = []
        self._computed = 0
        self._generated = 0
        self._next: int | None = None
        self._began_s = time.monotonic()
        self._decoding_since_s = self._began_s

    def step(self) -> bool:
        """Compute a part of the prompt, or one token; False once the sequence has finished."""
        if self._computed < len(self.job.prompt):
            self._prefill()
            return True
        if self._next is not None:
            self._state.append([self._next])
        return self._generate()

    def _prefill(self) -> None:
        part = self.job.prompt[self._computed : self._computed + self._prefill_tokens]
        self._state.append(part)
        self._computed += len(part)
        self._decoding_since_s = time.monotonic()
        elapsed_ms = (self._decoding_since_s - self._began_s) * 1000
        self._say(Progress(self._computed, len(self.job.prompt), elapsed_ms))

    def _generate(self) -> bool:
        logits = self._state.logits()[: self._vocabulary.size]
        token = self._sampler.draw(logits, self._allowed(len(logits)))
        self._generated += 1
        self._next = token
        ended = token in self._end_tokens
        if self._matcher is not None and not ended:
            self._matcher.consume_token(token)
        if not ended:
            self._show(token, logits)
            if self._stream.stopped or (self._matcher is not None and self._matcher.is_stopped()):
                ended = True
        if ended or self._generated >= self.job.output_limit_tokens:
            self._finish("stop" if ended else "length")
            return False
        return True

    def _allowed(self, size: int) -> Mask | None:
        if self._matcher is None:
            return None
        mask: Mask = np.frombuffer(self._matcher.compute_logit_bias(), dtype=np.uint8)[:size] != 0
        return mask

    def _show(self, token: int, logits: Row) -> None:
        piece = self._vocabulary.piece(token)
        if self.job.top_logprobs is not None:
            self._pending_logprobs.append(self._entry(token, logits, self.job.top_logprobs))
        # A control token in the output steers; it is no text.
        text = "" if self._vocabulary.is_control(token) else self._stream.feed(piece.raw)
        if text:
            self._output(text)

    def _entry(self, token: int, logits: Row, top: int) -> dict[str, Any]:
        own, best = log_probabilities(logits, token, top)
        return {**self._spelled(token, own), "top_logprobs": [self._spelled(each, chance) for each, chance in best]}

    def _spelled(self, token: int, logprob: float) -> dict[str, Any]:
        piece = self._vocabulary.piece(token)
        return {"id": token, "token": piece.text, "bytes": list(piece.raw), "logprob": logprob}

    def _output(self, text: str) -> None:
        entries = self._pending_logprobs if self.job.top_logprobs is not None else None
        self._pending_logprobs = []
        self._say(Output(text, entries))

    def _finish(self, reason: str) -> None:
        rest = self._stream.end()
        if rest or self._pending_logprobs:
            self._output(rest)
        now_s = time.monotonic()
        self._say(
            Finished(
                reason="stop" if self._stream.stopped else reason,
                prompt_tokens=len(self.job.prompt),
                prompt_ms=(self._decoding_since_s - self._began_s) * 1000,
                output_tokens=self._generated,
                output_ms=(now_s - self._decoding_since_s) * 1000,
            )
        )

    def _say(self, event: Event) -> None:
        self.job.emit(self.job.index, event)
