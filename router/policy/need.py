"""Says what one request needs in tokens: what is certain, what is likely, and how much output to expect."""

from __future__ import annotations

from typing import NamedTuple

from shared.fleet import prompt_bucket
from shared.openai.facts import RequestFacts

_CERTAIN_SHARE = 3
"""The estimate counts three bytes a token. Hardly any prompt covers more than nine bytes a token, so a third of the
estimate is a lower bound of the true count: only what does not fit even so is clearly too large."""


class Need(NamedTuple):
    """Tokens of one request. `certain_tokens` is a lower bound of prompt and output together, `likely_tokens` the
    estimate of the same; `output_tokens` is what the caller asked for, or the policy's default, and `typical_tokens`
    the lesser of both: how long an answer is taken to be where nobody has seen one."""

    model: str
    features: frozenset[str]
    prompt_tokens: int
    output_tokens: int
    certain_tokens: int
    likely_tokens: int
    bucket: int
    typical_tokens: int


def need_of(request: RequestFacts, default_output_tokens: int, cap_tokens: int | None) -> Need:
    """The need of `request` under a rule's cap. An output without a limit is clamped to what is left, so it needs one
    token."""
    prompt = request.prompt_tokens_estimate
    asked = request.max_tokens
    if cap_tokens is not None and (asked is None or asked > cap_tokens):
        asked = cap_tokens
    output = default_output_tokens if asked is None else asked
    certain = prompt // _CERTAIN_SHARE + (1 if asked is None else asked)
    bucket, typical = prompt_bucket(prompt), min(output, default_output_tokens)
    return Need(request.model, request.features, prompt, output, certain, prompt + output, bucket, typical)
