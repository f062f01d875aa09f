"""Tells errors as Ollama's clients read them: `{"error": "text"}`, which names the field in Ollama's own words."""

from __future__ import annotations

import re

import orjson
from aiohttp import web

from edge.service.ollama.dialect import GENERATE
from shared.errors import IsthmusError, NotFound
from shared.openai.envelope import envelope_bytes

PREFIX = "/api/"
_OPTIONS = {
    "max_tokens": "num_predict",
    "repetition_penalty": "repeat_penalty",
    "repeat_last_n": "repeat_last_n",
    **{name: name for name in ("temperature", "top_k", "top_p", "min_p", "typical_p", "mirostat", "seed", "stop")},
    **{name: name for name in ("presence_penalty", "frequency_penalty")},
}
_STOP = re.compile(r"stop\[[0-9]+\]\Z")


def shape(request: web.Request, error: IsthmusError) -> bytes:
    """The body that tells of `error`: Ollama's on its routes, OpenAI's elsewhere."""
    if not request.path.startswith(PREFIX):
        return envelope_bytes(error)
    param = None if error.param is None else _named(error.param, request.path)
    message = error.message.replace("response_format", "format")
    told = message if param is None else f"{param}: {message}"
    return orjson.dumps({"error": told, "code": error.code, **({} if param is None else {"param": param})})


def not_found(model: str) -> NotFound:
    """A model that is not served, in the words that clients look for."""
    return NotFound(f"model '{model}' not found", code="model_not_found")


def _named(param: str, path: str) -> str:
    if param in _OPTIONS:
        return f"options.{_OPTIONS[param]}"
    if _STOP.match(param):
        return f"options.{param}"
    if param.startswith("response_format"):
        return "format"
    if path == GENERATE and param.startswith("messages"):
        return "prompt"
    return param
