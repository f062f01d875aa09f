"""Rewrites a validated OpenAI body into the one form of it that the engine gets right.

Only fields that are named here reach the engine, so nothing a client invents can steer it. Always asked for:
a stream with progress, because only then does a client's leaving stop prefill and decode at once, and usage.
Sampling defaults are OpenAI's (temperature 1, no truncation), not the engine's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from edge.runtime.port import AppliedAdapter, EngineFacts
from edge.service import refusals
from edge.service.adapters.selection import Chosen, served_name
from edge.service.grammar import Grammar
from edge.service.tools.use import ToolUse, must_call, use_of
from shared.openai.facts import Endpoint

_SEED_MASK = 2**32 - 1
_RANDOM_SEED = 2**32 - 1
"""The engine reads this seed as 'choose one at random'."""
_SAMPLING = {
    "temperature": ("temperature", 1.0),
    "top_p": ("top_p", 1.0),
    "min_p": ("min_p", 0.0),
    "presence_penalty": ("presence_penalty", 0.0),
    "frequency_penalty": ("frequency_penalty", 0.0),
    "repetition_penalty": ("repeat_penalty", 1.0),
}
_LEGACY_DEFAULT_TOKENS = 16
"""OpenAI's documented default of `max_tokens` on /v1/completions."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What is sent to the engine, and what the answer has to look like.

    `top_logprobs` is None when no log-probabilities were asked for. `max_tokens` is the caller's own limit.
    `context_tokens` is that of the slot for which the request was checked. `model` is the name that the caller used.
    Requests with the same `lane` are not run side by side. `output_cap_tokens` is the limit that heat set, where it is
    lower than what was asked for. `grammar` is what the answer cannot leave; with `reads_calls`, it holds tool calls in
    our form, and at least one with `must_call`.
    """

    endpoint: Endpoint
    body: dict[str, Any]
    stream: bool
    include_usage: bool
    choices: int
    prompts: int
    max_tokens: int | None
    max_tokens_param: str
    top_logprobs: int | None
    context_tokens: int
    model: str = ""
    adapters: tuple[Chosen, ...] = ()
    lane: frozenset[AppliedAdapter] | None = None
    output_cap_tokens: int | None = None
    grammar: Grammar | None = None
    reads_calls: bool = False
    must_call: bool = False

    @property
    def slots(self) -> int:
        """Slots that the request occupies side by side."""
        return max(self.choices, self.prompts)

    def with_body(self, body: dict[str, Any]) -> EngineRequest:
        """The same request with another engine body."""
        return replace(self, body=body)

    def without_promise(self) -> EngineRequest:
        """The same request, whose output limit is kept and need not fit: the context may end the answer before."""
        return replace(self, max_tokens=None)

    def with_penalty_window(self, tokens: int) -> EngineRequest:
        """The same request, whose penalties look back so many tokens (-1: the whole context).

        Never more than the context: the engine reserves memory for as many as it is told.
        """
        window = self.context_tokens if tokens < 0 else min(tokens, self.context_tokens)
        return self.with_body(self.body | {"repeat_last_n": window})

    @property
    def applied(self) -> tuple[AppliedAdapter, ...]:
        """The adapters as the engine's port takes them."""
        return tuple(AppliedAdapter(each.adapter.digest, each.scale) for each in self.adapters)

    def with_adapters(self, adapters: tuple[Chosen, ...], *, exact: bool) -> EngineRequest:
        """The same request with these adapters and no other.

        `exact`: the answer must not depend on cache and company. The engine multiplies an adapter's thin matrices in
        another order for one token than for several, so going on from a cached prompt, or decoding beside a request
        with the same adapters (others are never batched with it), would change the last bits.
        """
        if not adapters:
            return self
        chosen = replace(self, adapters=adapters)
        if not exact:
            return chosen
        return replace(chosen, body=self.body | {"cache_prompt": False}, lane=frozenset(chosen.applied))


def translate(
    endpoint: Endpoint, body: dict[str, Any], facts: EngineFacts, *, output_cap_tokens: int | None = None
) -> EngineRequest:
    """The engine's form of a body that passed `shared.openai.validation`.

    Raises:
        NotFound: another model is asked for (code `model_not_found`).
        InvalidRequest: the engine cannot honour a field.
    """
    served_name(body, facts.model_id)
    refusals.check(endpoint, body, facts)
    chat = endpoint is Endpoint.CHAT
    use = use_of(body, [_message(message) for message in body["messages"]], facts.template) if chat else ToolUse([])
    param = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    max_tokens = body.get(param)
    top_logprobs = _top_logprobs(chat, body)
    wanted_tokens = max_tokens if chat or max_tokens else _LEGACY_DEFAULT_TOKENS
    capped = output_cap_tokens is not None and (wanted_tokens is None or wanted_tokens > output_cap_tokens)
    return EngineRequest(
        endpoint=endpoint,
        body={
            **_common(body, facts),
            **(_chat(body, use) if chat else {"prompt": body["prompt"]}),
            **_limit(wanted_tokens, output_cap_tokens),
            **_logprobs(chat, top_logprobs),
        },
        stream=body.get("stream") is True,
        include_usage=(body.get("stream_options") or {}).get("include_usage") is True,
        choices=body.get("n") or 1,
        prompts=1 if chat else refusals.prompt_count(body["prompt"]),
        max_tokens=max_tokens,
        max_tokens_param=param,
        top_logprobs=top_logprobs,
        context_tokens=facts.context_tokens,
        model=body["model"],
        output_cap_tokens=output_cap_tokens if capped else None,
        grammar=use.grammar,
        reads_calls=use.reads_calls,
        must_call=use.must_call,
    )


def folded_seed(seed: int) -> int:
    """A 64-bit seed as one of the engine's 32 bits: equal seeds stay equal, and none means random."""
    folded = (seed ^ (seed >> 32)) & _SEED_MASK if not 0 <= seed < _RANDOM_SEED else seed
    return folded if folded != _RANDOM_SEED else _RANDOM_SEED - 1


def _common(body: dict[str, Any], facts: EngineFacts) -> dict[str, Any]:
    engine: dict[str, Any] = {
        "model": facts.model_id,
        "stream": True,
        "return_progress": True,
        "stream_options": {"include_usage": True},
        "n": body.get("n") or 1,
        "top_k": max(0, body.get("top_k") or 0),
    }
    for name, (engine_name, default) in _SAMPLING.items():
        value = body.get(name)
        engine[engine_name] = default if value is None else value
    if body.get("seed") is not None:
        engine["seed"] = folded_seed(body["seed"])
    if body.get("stop") and not must_call(body):  # it ends texts; a call would be cut in two
        engine["stop"] = body["stop"]
    if body.get("logit_bias"):
        # OpenAI's -100 means never; a finite bias could still be outweighed.
        pairs = body["logit_bias"].items()
        engine["logit_bias"] = [[int(token), False if bias <= -100 else bias] for token, bias in pairs]
    return engine


def _limit(max_tokens: int | None, output_cap_tokens: int | None) -> dict[str, Any]:
    limits = [limit for limit in (max_tokens, output_cap_tokens) if limit is not None]
    return {"max_tokens": min(limits)} if limits else {}


def _chat(body: dict[str, Any], use: ToolUse) -> dict[str, Any]:
    engine: dict[str, Any] = {"messages": use.messages, **use.fields}
    if body.get("continue_final_message") is True:
        engine |= {"continue_final_message": True, "add_generation_prompt": False}
    if use.grammar is not None:
        engine["grammar"] = use.grammar.text
    return engine


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its text in one string: parts joined by a line break, as the cloud tier's templates do."""
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(part["text"] if part["type"] == "text" else part["refusal"] for part in content)
    if content is None:
        content = message.get("refusal") or ""
    role = "system" if message["role"] == "developer" else message["role"]
    kept = {name: message[name] for name in ("tool_calls", "tool_call_id", "name") if message.get(name) is not None}
    return {"role": role, "content": content, **kept}


def _top_logprobs(chat: bool, body: dict[str, Any]) -> int | None:
    if chat:
        return (body.get("top_logprobs") or 0) if body.get("logprobs") else None
    logprobs: int | None = body.get("logprobs")
    return logprobs


def _logprobs(chat: bool, top_logprobs: int | None) -> dict[str, Any]:
    # Zero alternatives would switch the engine's log-probabilities off: ask for one and leave it out of the answer.
    if top_logprobs is None:
        return {}
    wanted = max(1, top_logprobs)
    return {"logprobs": True, "top_logprobs": wanted} if chat else {"logprobs": wanted}
