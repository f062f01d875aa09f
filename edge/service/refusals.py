"""Decides which valid OpenAI fields this engine cannot honour: those are refused, never quietly ignored.

Each entry was found by asking the engine and comparing answers: it takes the field, says 200, and acts as if the
field were absent, or worse. A field with its neutral value is fine, because ignoring it changes nothing.
"""

from __future__ import annotations

from typing import Any

from edge.runtime.port import EngineFacts
from edge.service.tools.use import must_call
from shared.errors import InvalidRequest
from shared.openai.facts import Endpoint

UNSUPPORTED = "unsupported_parameter"
UNSUPPORTED_MODEL = "unsupported_model"
CONTINUATION = "continuation"
"""Feature of an engine that goes on with a last assistant message when it is told to."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    # OpenAI
    "audio": (),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "truncation": ("disabled",),
    "verbosity": (),
    "web_search_options": (),
    "echo": (False,),
    "suffix": ("",),
    # vLLM, which the cloud tier serves
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "documents": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "ignore_eos": (False,),
    "length_penalty": (1, 1.0),
    "min_tokens": (0,),
    "prompt_logprobs": (),
    "stop_token_ids": ([],),
    "structured_outputs": (),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    # llama.cpp: reaching past the OpenAI surface into the engine
    "grammar": ("",),
    "json_schema": (),
    "mirostat": (0,),
    "samplers": (),
    "typical_p": (1, 1.0),
}
_MEDIA = {"image_url": "images", "input_audio": "audio", "file": "files"}


def check(endpoint: Endpoint, body: dict[str, Any], facts: EngineFacts) -> None:
    """Refuse what the engine would get wrong without saying so.

    Raises:
        InvalidRequest: `param` names the field; code `unsupported_parameter`, or `unsupported_model` where no chat is
            supported at all: another backend may serve it.
    """
    for name, neutral in _NEUTRAL.items():
        value = body.get(name)
        if value is not None and not any(type(value) is type(n) and value == n for n in neutral):
            raise InvalidRequest(f"{name} is not supported by this backend.", param=name, code=UNSUPPORTED)
    if body.get("lora") and "lora" not in facts.features:
        raise InvalidRequest("The engine of this model takes no adapters.", param="lora", code=UNSUPPORTED)
    _check_choices(endpoint, body, facts)
    _check_token_ids(endpoint, body, facts)
    if endpoint is Endpoint.CHAT:
        _check_template(facts)
        _check_continuation(body, facts)
        _check_media(body)
        _check_tools(body, facts)


def _check_template(facts: EngineFacts) -> None:
    """Where a model brings none, the engine takes one that the model was never shown."""
    if facts.package is not None and facts.package.manifest.model.tokenizer.chat_template_sha256 is None:
        raise InvalidRequest(
            "This model has no chat template; it serves /v1/completions alone.", param="model", code=UNSUPPORTED_MODEL
        )


def _check_choices(endpoint: Endpoint, body: dict[str, Any], facts: EngineFacts) -> None:
    n = body.get("n") or 1
    if n > facts.slots:
        raise InvalidRequest(
            f"n must be at most {facts.slots}, the number of this backend's slots.", param="n", code=UNSUPPORTED
        )
    best_of = body.get("best_of")
    if best_of is not None and best_of != n:
        raise InvalidRequest(
            "best_of other than n is not supported by this backend.", param="best_of", code=UNSUPPORTED
        )
    if endpoint is Endpoint.COMPLETIONS and n > 1 and prompt_count(body["prompt"]) > 1:
        raise InvalidRequest(
            "n above 1 with several prompts is not supported by this backend.", param="n", code=UNSUPPORTED
        )


def _check_token_ids(endpoint: Endpoint, body: dict[str, Any], facts: EngineFacts) -> None:
    limit = facts.vocabulary_tokens
    if any(int(token) >= limit for token in body.get("logit_bias") or ()):
        raise InvalidRequest(f"logit_bias names a token id that is not below {limit}.", param="logit_bias")
    if endpoint is Endpoint.COMPLETIONS:
        for ids in token_prompts(body["prompt"]):
            if any(token >= limit for token in ids):
                raise InvalidRequest(f"prompt holds a token id that is not below {limit}.", param="prompt")


def _check_continuation(body: dict[str, Any], facts: EngineFacts) -> None:
    continues = body.get("continue_final_message") is True
    if continues and CONTINUATION not in facts.features:
        raise InvalidRequest(
            "continue_final_message is not supported by this backend.", param="continue_final_message", code=UNSUPPORTED
        )
    if continues and (body.get("tools") or (body.get("response_format") or {}).get("type", "text") != "text"):
        # Its grammar starts anew after the text that is there, and its parser of calls does not read it.
        raise InvalidRequest(
            "continue_final_message with tools or response_format is not supported by this backend.",
            param="continue_final_message",
            code=UNSUPPORTED,
        )
    if body.get("add_generation_prompt") is False and not continues:
        raise InvalidRequest(
            "add_generation_prompt is not supported by this backend.", param="add_generation_prompt", code=UNSUPPORTED
        )


def _check_media(body: dict[str, Any]) -> None:
    for index, message in enumerate(body["messages"]):
        content = message.get("content")
        for position, part in enumerate(content if isinstance(content, list) else ()):
            if part["type"] in _MEDIA:
                raise InvalidRequest(
                    f"This model takes no {_MEDIA[part['type']]}.",
                    param=f"messages[{index}].content[{position}]",
                    code="unsupported_content",
                )


def _check_tools(body: dict[str, Any], facts: EngineFacts) -> None:
    if not body.get("tools"):
        return
    choice = body.get("tool_choice")
    if choice == "none":
        return
    if "tools" not in facts.features:
        raise InvalidRequest("This model does not support tools.", param="tools", code=UNSUPPORTED)
    structured = (body.get("response_format") or {}).get("type", "text") != "text"
    if structured and facts.template.tools and not must_call(body):
        # The engine reads the calls, and takes no grammar beside them.
        raise InvalidRequest(
            "response_format with tools that need not be called is not supported by this backend.",
            param="response_format",
            code=UNSUPPORTED,
        )


def prompt_count(prompt: Any) -> int:
    """How many prompts a legacy `prompt` field holds."""
    return len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1


def token_prompts(prompt: Any) -> list[list[int]]:
    """The prompts of a legacy `prompt` field that are given as token ids."""
    if not isinstance(prompt, list) or isinstance(prompt[0], str):
        return []
    return [prompt] if isinstance(prompt[0], int) else prompt


def text_prompts(prompt: Any) -> list[str]:
    """The prompts of a legacy `prompt` field that are given as text."""
    if isinstance(prompt, str):
        return [prompt]
    return prompt if isinstance(prompt[0], str) else []
