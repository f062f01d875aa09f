"""Makes one vector of each text: admitted like a generation, one at a time, and counted by the engine's own tokens.

The texts are cut into tokens here, without control tokens: what a caller types stays text. One engine request a text
lets others in between, and ends the work as soon as the caller leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import orjson
from aiohttp import web

from edge.runtime.port import EngineFacts
from edge.service.admission import Admission
from edge.service.cutting import cut
from edge.service.deadline import answering
from edge.service.engine_client import EngineClient
from edge.service.generation import GenerationLimits
from edge.service.outcome import counted
from edge.service.refusals import UNSUPPORTED_MODEL, text_prompts, token_prompts
from edge.service.served import Served
from edge.service.wait import Work
from shared.clock import Clock
from shared.errors import BackendTimeout, ContextLengthExceeded, InvalidRequest, NotFound, NotReady, QueueFull
from shared.http.intake import read_object
from shared.http.lifecycle import Lifecycle
from shared.http.tracing import span_of
from shared.openai.facts import Endpoint
from shared.openai.validation import validate
from shared.telemetry import EdgeMetrics

T = TypeVar("T")
_PATIENCE_S = 15.0
"""How long a list that has begun waits, in all, for an engine that another one is put in the place of."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """A vector for each text in order, each as the engine wrote it, and the tokens of all texts."""

    vectors: list[Any]
    tokens: int


@dataclass(frozen=True, slots=True)
class _Text:
    """One text as tokens, and what it was before: None where the caller gave tokens."""

    ids: list[int]
    text: str | None = None


class Embeddings:
    """Serves the routes that make vectors."""

    def __init__(
        self,
        served: Served,
        client: EngineClient,
        admission: Admission,
        lifecycle: Lifecycle,
        limits: GenerationLimits,
        *,
        metrics: EdgeMetrics,
        clock: Clock,
    ) -> None:
        self._served = served
        self._client = client
        self._admission = admission
        self._lifecycle = lifecycle
        self._limits = limits
        self._metrics = metrics
        self._clock = clock

    async def serve(self, request: web.Request, owner: str | None = None) -> web.StreamResponse:
        """Answer `/v1/embeddings` for the key called `owner`; raises what `shared.http.errors` turns into an answer."""
        limits = self._limits
        _, body = await read_object(request, limit_bytes=limits.body_bytes, limit_s=limits.body_s)
        validate(Endpoint.EMBEDDINGS, body)
        encoding = body.get("encoding_format") or "float"
        made = await self.made(request, body, owner=owner, encoding=encoding)
        data = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(made.vectors)]
        usage = {"prompt_tokens": made.tokens, "total_tokens": made.tokens}
        answer = {"object": "list", "data": data, "model": body["model"], "usage": usage}
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    async def made(
        self, request: web.Request, body: dict[str, Any], *, owner: str | None, encoding: str, cuts: bool = False
    ) -> Vectors:
        """The vectors of the texts of a validated body. `cuts`: of a text that is too long, those tokens that fit.

        Raises:
            NotFound: another model is asked for. ContextLengthExceeded: a text is too long.
            InvalidRequest: the model makes no vectors, none of these dimensions, or a token id is none of its own.
            CapacityError: there is no slot.
        """
        with counted(self._metrics, request.path) as outcome, self._lifecycle.request():
            if self._lifecycle.in_flight > self._limits.connections:
                raise QueueFull("Too many requests are open.", retry_after_s=self._admission.retry_after_s(owner))
            outcome.started_ms, outcome.owner, outcome.span = self._clock.now_ms(), owner, span_of(request)
            limit = _limit_of(await self._served.arriving(), body)
            async with answering(self._lifecycle.expired, idle_limit_s=self._limits.idle_limit_s):
                texts = await self._texts(body["input"], self._served.require())
            if not cuts:
                for text in texts:
                    _require_fit(text.ids, limit)
            works = _works([min(len(text.ids), limit) for text in texts])
            patience = _Patience(self._clock)
            made = []
            for text, work in zip(texts, works, strict=True):
                vector = partial(self._vector, text, work, encoding, owner, cuts=cuts)
                made.append(await (patience.result(vector) if work.is_promised else vector()))
            return Vectors([vector for vector, _ in made], sum(tokens for _, tokens in made))

    async def _texts(self, given: Any, facts: EngineFacts) -> list[_Text]:
        """The texts as tokens."""
        texts = [_Text(ids) for ids in token_prompts(given)]
        if any(token >= facts.vocabulary_tokens for text in texts for token in text.ids):
            raise InvalidRequest(f"input holds a token id that is not below {facts.vocabulary_tokens}.", param="input")
        # One at a time, the engine has few threads.
        texts += [_Text(await self._client.text_ids(text), text) for text in text_prompts(given)]
        if not all(text.ids for text in texts):
            raise InvalidRequest("input holds a text without a token.", param="input")
        return texts

    async def _vector(
        self, text: _Text, work: Work, encoding: str, owner: str | None, *, cuts: bool
    ) -> tuple[Any, int]:
        """The vector of one text, once there is a slot for it, and its tokens; time in the line is no silence of the
        engine. Which may be another one by then, with room for less."""
        limit = answering(self._lifecycle.expired, idle_limit_s=self._limits.idle_limit_s)
        slot = self._admission.slot(owner=owner, work=work)
        try:
            async with limit as alive, slot:
                alive()
                ids, room = text.ids, (await self._served.arriving()).embedding_input_tokens or 0
                if len(ids) > room and cuts and text.text is not None:
                    ids = cut(ids, await self._client.text_ids(text.text, bare=True), room)
                _require_fit(ids, room)
                return await self._client.embed(ids, encoding), len(ids)
        except BackendTimeout:
            self._client.doubt()
            raise


class _Patience:
    """What a list does while an engine has gone and the next one is not there yet: it was admitted, so it is not turned
    away between two of its texts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left_s = _PATIENCE_S

    async def result(self, made: Callable[[], Awaitable[T]]) -> T:
        """What `made` comes to, once there is an engine. Raises NotReady: it takes too long."""
        while True:
            try:
                return await made()
            except NotReady as error:
                wait_s = error.retry_after_s or 1
                if wait_s > self._left_s:
                    raise
                self._left_s -= wait_s
            await self._clock.sleep(wait_s)


def _works(sizes: list[int]) -> list[Work]:
    """What the turns of a list of texts of so many tokens each are, one a text."""
    left = list(itertools.accumulate(reversed(sizes), initial=0))[-2::-1]
    later = range(len(sizes) - 1, -1, -1)
    return [
        Work("text", size, later_turns=turns, later_size=tokens, is_promised=at > 0)
        for at, (size, turns, tokens) in enumerate(zip(sizes, later, left, strict=True))
    ]


def _require_fit(ids: list[int], limit: int) -> None:
    if len(ids) > limit:
        raise ContextLengthExceeded.of(needed_tokens=len(ids), limit_tokens=limit, param="input")


def _limit_of(facts: EngineFacts, body: dict[str, Any]) -> int:
    """Tokens that a text may have."""
    if body["model"] != facts.model_id:
        raise NotFound(
            "This backend makes no embeddings with the model asked for.", param="model", code="model_not_found"
        )
    if facts.embedding_input_tokens is None:
        raise InvalidRequest("This model does not support embeddings.", param="model", code=UNSUPPORTED_MODEL)
    dimensions = body.get("dimensions")
    if dimensions is not None and facts.package is not None:
        made = facts.package.manifest.geometry.embedding_length
        if dimensions != made:
            raise InvalidRequest(f"dimensions must be {made}, as this model makes them.", param="dimensions")
    return facts.embedding_input_tokens
