"""Ollama's `/api/embed` and the older `/api/embeddings`: their bodies in OpenAI's words, and their answers."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from edge.service.embedding import Embeddings, Vectors
from edge.service.ollama.naming import model_of
from edge.service.ollama.wire import EmbedBody
from edge.service.refusals import UNSUPPORTED_MODEL
from shared.clock import Clock
from shared.errors import InvalidRequest
from shared.openai.facts import Endpoint
from shared.openai.validation import validate

EMBED = "/api/embed"
LEGACY = "/api/embeddings"
_NS_PER_MS = 1_000_000


async def answer(
    request: web.Request, given: EmbedBody, embeddings: Embeddings, clock: Clock, owner: str | None
) -> web.StreamResponse:
    """The vectors of `given`. Texts that are too long are cut unless the caller says otherwise, as Ollama does.

    Raises:
        NotFound, ContextLengthExceeded, InvalidRequest, CapacityError: as `Embeddings.made`.
    """
    is_legacy = request.path == LEGACY
    began_ms = clock.now_ms()
    texts = given.prompt if is_legacy else given.input
    made = Vectors([], 0)
    if texts:
        body: dict[str, Any] = {"model": model_of(given.model), "input": texts}
        if given.dimensions is not None:
            body["dimensions"] = given.dimensions
        validate(Endpoint.EMBEDDINGS, body)
        cuts = given.truncate is not False
        try:
            made = await embeddings.made(request, body, owner=owner, encoding="float", cuts=cuts)
        except InvalidRequest as error:
            if error.code != UNSUPPORTED_MODEL:
                raise
            # In Ollama's words, which name no field.
            raise InvalidRequest(error.message, code=UNSUPPORTED_MODEL) from None
    told: dict[str, Any] = {"embedding": made.vectors[0] if made.vectors else []}
    if not is_legacy:
        told = {
            "model": given.model,
            "embeddings": made.vectors,
            "total_duration": (clock.now_ms() - began_ms) * _NS_PER_MS,
            "load_duration": 0,
            "prompt_eval_count": made.tokens,
        }
    return web.Response(body=orjson.dumps(told), content_type="application/json")
