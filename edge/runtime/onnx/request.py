"""Reads the agent's form of a request into jobs; a field that this engine does not honour is refused by name.

The fields are those that `edge/service/translation.py` writes for llama.cpp's server: one agent, two engines, one form.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher

from edge.runtime.onnx.sampling import SamplingRules
from edge.runtime.onnx.text import Vocabulary

_KNOWN = frozenset(
    {"model", "stream", "return_progress", "stream_options", "n", "top_k", "temperature", "top_p", "min_p",
     "presence_penalty", "frequency_penalty", "repeat_penalty", "seed", "stop", "logit_bias", "messages", "prompt",
     "grammar", "max_tokens", "logprobs", "top_logprobs", "lora", "repeat_last_n"}
)  # fmt: skip
_RANDOM_SEED = 2**32 - 1


class Refused(Exception):
    """The request cannot be served as it is: `details` is the engine's error object, with status 400."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = {"code": 400, "type": "invalid_request_error", "message": message, **details}


@dataclass(frozen=True, slots=True)
class Work:
    """One request: its prompts, how many choices of each, and what all of them share."""

    chat: bool
    prompts: list[list[int]]
    choices: int
    output_limits_tokens: list[int]
    rules: SamplingRules
    stops: tuple[str, ...]
    grammar: str | None
    top_logprobs: int | None


def read(
    body: dict[str, Any],
    *,
    chat: bool,
    vocabulary: Vocabulary,
    prompt_of: Callable[[str], str],
    context_tokens: int,
) -> Work:
    """The work that `body` asks for.

    Raises:
        Refused: a field is unknown, malformed, or the prompt does not fit.
    """
    unknown = sorted(set(body) - _KNOWN)
    if unknown:
        raise Refused(f"{unknown[0]} is not supported by this engine.", param=unknown[0])
    if body.get("lora"):  # the agent always says which adapters apply; here none can
        raise Refused("lora is not supported by this engine.", param="lora")
    prompts = [_chat_prompt(body, vocabulary, prompt_of)] if chat else _prompts(body.get("prompt"), vocabulary)
    for prompt in prompts:
        _check_prompt(prompt, vocabulary, context_tokens)
    limit = body.get("max_tokens")
    return Work(
        chat=chat,
        prompts=prompts,
        choices=body.get("n") or 1,
        output_limits_tokens=[min(limit or context_tokens, context_tokens - len(prompt)) for prompt in prompts],
        rules=_rules(body),
        stops=_stops(body.get("stop")),
        grammar=_grammar(body.get("grammar")),
        top_logprobs=_top_logprobs(body),
    )


def chat_prompt(body: dict[str, Any], vocabulary: Vocabulary, prompt_of: Callable[[str], str]) -> list[int]:
    """Tokens of a chat body after its template; raises as `read`."""
    if body.get("tools"):
        raise Refused("tools is not supported by this engine.", param="tools")
    return _chat_prompt(body, vocabulary, prompt_of)


def _chat_prompt(body: dict[str, Any], vocabulary: Vocabulary, prompt_of: Callable[[str], str]) -> list[int]:
    return vocabulary.tokens(prompt_of(json.dumps(body.get("messages"))), control=True)


def _prompts(prompt: Any, vocabulary: Vocabulary) -> list[list[int]]:
    if isinstance(prompt, str):
        return [vocabulary.tokens(prompt, control=True)]
    if not isinstance(prompt, list) or not prompt:
        raise Refused("prompt must be text or token ids.", param="prompt")
    if isinstance(prompt[0], int):
        return [prompt]
    return [vocabulary.tokens(each, control=True) if isinstance(each, str) else each for each in prompt]


def _check_prompt(prompt: list[int], vocabulary: Vocabulary, context_tokens: int) -> None:
    if not prompt:
        raise Refused("prompt must hold at least one token.", param="prompt")
    if not all(0 <= token < vocabulary.size for token in prompt):
        raise Refused("prompt holds an invalid token id.", param="prompt")
    if len(prompt) >= context_tokens:
        raise Refused(
            "The prompt does not fit.",
            type="exceed_context_size_error",
            n_prompt_tokens=len(prompt),
            n_ctx=context_tokens,
        )


def _rules(body: dict[str, Any]) -> SamplingRules:
    seed = body.get("seed")
    return SamplingRules(
        temperature=body.get("temperature", 1.0),
        top_k=body.get("top_k") or 0,
        top_p=body.get("top_p", 1.0),
        min_p=body.get("min_p", 0.0),
        presence_penalty=body.get("presence_penalty", 0.0),
        frequency_penalty=body.get("frequency_penalty", 0.0),
        repetition_penalty=body.get("repeat_penalty", 1.0),
        penalty_window_tokens=body.get("repeat_last_n"),
        bias={token: -math.inf if bias is False else float(bias) for token, bias in body.get("logit_bias") or ()},
        seed=None if seed in (None, _RANDOM_SEED) else seed,
    )


def _stops(stop: Any) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def _grammar(grammar: Any) -> str | None:
    if grammar is None:
        return None
    if LLMatcher.validate_grammar(grammar):
        raise Refused("The grammar is invalid.", param="grammar")
    return str(grammar)


def _top_logprobs(body: dict[str, Any]) -> int | None:
    logprobs = body.get("logprobs")
    if logprobs is True:
        return int(body.get("top_logprobs") or 0)
    return None if logprobs in (None, False) else int(logprobs)
