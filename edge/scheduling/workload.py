"""What is computed: the passes into which the engine cuts a prompt or an answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pass:
    """`tokens` computed together after `past_tokens`, `count` times; the past is the mean over those times.

    `outputs` is how many tokens of a pass go through the head: the last of a prompt alone does.
    """

    tokens: int
    past_tokens: float
    count: int = 1
    outputs: float = 1.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Passes that together compute `tokens` tokens."""

    tokens: int
    passes: tuple[Pass, ...]


def decode(past_tokens: int) -> Workload:
    """One token after `past_tokens`."""
    return Workload(1, (Pass(1, past_tokens),))


def prefill(prompt_tokens: int, *, batch_tokens: int, ubatch_tokens: int) -> Workload:
    """A prompt from an empty cache, as llama.cpp cuts it: into batches, and each batch into micro-batches.

    Batches that are no multiple of a micro-batch leave a short pass each, which reads all weights for few tokens.
    Passes of one length are taken together: what they cost is linear in their past.
    """
    pasts: dict[int, list[int]] = {}
    done = length = 0
    while done < prompt_tokens:
        batch_left = batch_tokens - done % batch_tokens
        length = min(ubatch_tokens, batch_left, prompt_tokens - done)
        pasts.setdefault(length, []).append(done)
        done += length
    passes = tuple(
        Pass(each, sum(found) / len(found), len(found), outputs=1 / len(found) if each == length else 0.0)
        for each, found in pasts.items()
    )
    return Workload(prompt_tokens, passes)
