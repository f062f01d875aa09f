"""Says in OpenAI's words how an Ollama request wants to be sampled and shaped."""

from __future__ import annotations

from typing import Any

from edge.service.ollama.wire import Options
from shared.errors import InvalidRequest

_DEFAULTS = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
"""Ollama's own, which its front ends rely on where they say nothing; OpenAI's differ."""
_SAME = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "typical_p", "mirostat")


def sampling(options: Options | None) -> dict[str, Any]:
    """The fields of an OpenAI body for `options`; values out of range are refused where every body is checked.

    Raises:
        InvalidRequest: an option would be without effect that the caller counts on.
    """
    given = options or Options()
    body: dict[str, Any] = dict(_DEFAULTS)
    body |= {name: value for name in _SAME if (value := getattr(given, name)) is not None}
    if given.repeat_penalty is not None:
        body["repetition_penalty"] = given.repeat_penalty
    if given.seed is not None and given.seed != -1:  # which is Ollama's word for none
        body["seed"] = given.seed
    if given.num_predict == 0:
        raise InvalidRequest("It must be at least 1, or -1 for no limit.", param="options.num_predict")
    if given.num_predict is not None and given.num_predict > 0:
        body["max_tokens"] = given.num_predict
    if given.stop:
        body["stop"] = given.stop
    return body


def response_format(wanted: str | dict[str, Any] | None) -> dict[str, Any]:
    """The field `response_format` for Ollama's `format`; nothing where any text will do."""
    if wanted is None or wanted == "":
        return {}
    if isinstance(wanted, str):
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "format", "schema": wanted}}}
