"""Counts the tokens that a request would have as its prompt, by the engine that would serve it, without generating."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from edge.service.control_tokens import ControlTokens
from edge.service.engine_client import EngineClient
from edge.service.refusals import text_prompts, token_prompts
from edge.service.served import Served
from edge.service.translation import translate
from shared.errors import InvalidRequest
from shared.http.intake import read_object
from shared.http.lifecycle import Lifecycle
from shared.openai.facts import Endpoint
from shared.openai.validation import validate

ROUTE = "/v1/tokenize"


class Counting:
    """Serves `/v1/tokenize`: a body of chat (`messages`, `tools`) or of legacy completions (`prompt`)."""

    def __init__(self, served: Served, client: EngineClient, lifecycle: Lifecycle, *, body_bytes: int) -> None:
        self._served = served
        self._client = client
        self._lifecycle = lifecycle
        self._body_bytes = body_bytes
        self._control_tokens = ControlTokens(client)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer with `count` and `max_model_len`; raises what `shared.http.errors` turns into an answer."""
        with self._lifecycle.request():
            _, body = await read_object(request, limit_bytes=self._body_bytes)
            if ("messages" in body) == ("prompt" in body):
                raise InvalidRequest("Exactly one of messages and prompt is required.", param="messages")
            endpoint = Endpoint.CHAT if "messages" in body else Endpoint.COMPLETIONS
            validate(endpoint, body)
            facts = self._served.require()
            engine_body = translate(endpoint, body, facts).body
            count = await (self._chat(engine_body) if endpoint is Endpoint.CHAT else self._text(engine_body["prompt"]))
        answer = {"model": body["model"], "count": count, "max_model_len": facts.context_tokens}
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    async def _chat(self, body: dict[str, Any]) -> int:
        return await self._client.count_chat(await self._control_tokens.defused(body))

    async def _text(self, prompt: Any) -> int:
        """All prompts of a legacy body together, as usage counts them."""
        count = sum(len(ids) for ids in token_prompts(prompt))
        for text in text_prompts(prompt):
            count += await self._client.count_text(text)
        return count
