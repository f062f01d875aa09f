"""The HTTP server of an ONNX engine process: the part of llama.cpp's routes that the agent uses."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import web

from edge.runtime.onnx.chunks import DONE, Chunks
from edge.runtime.onnx.model import Model, TemplateRefused
from edge.runtime.onnx.request import Refused, Work, chat_prompt, read
from edge.runtime.onnx.scheduler import Scheduler
from edge.runtime.onnx.sequence import Event, Failed, Finished, Job, Output, Progress, Sequence
from edge.runtime.onnx.text import Vocabulary

_BODY_LIMIT_BYTES = 64 << 20  # the agent has its own, lower limit
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Serves one loaded package."""

    def __init__(
        self, model: Model, vocabulary: Vocabulary, *, end_tokens: frozenset[int], options: dict[str, Any], secret: str
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._end_tokens = end_tokens
        self._options = options
        self._secret = f"Bearer {secret}".encode()
        self._scheduler = Scheduler(self._started, slots=options["slots"])

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[self._guarded], client_max_size=_BODY_LIMIT_BYTES)
        app.add_routes(
            [
                web.post("/v1/chat/completions", partial(self._stream, True)),
                web.post("/v1/completions", partial(self._stream, False)),
                web.post("/v1/chat/completions/input_tokens", self._count),
                web.post("/completion", self._first_token),
                web.post("/tokenize", self._tokenize),
                web.get("/props", self._props),
                web.get("/health", self._health),
            ]
        )
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, self._secret):
            return _answer({"error": {"code": 401, "message": "Invalid API key."}}, status=401)
        try:
            return await handler(request)
        except Refused as refused:
            return _answer({"error": refused.details}, status=400)
        except TemplateRefused:
            details = {"code": 400, "message": "The chat template refuses these messages."}
            return _answer({"error": details}, status=400)

    async def _stream(self, chat: bool, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        work = await asyncio.to_thread(self._read, body, chat)
        chunks = Chunks(chat=chat, model=self._options["model_alias"])
        arrived: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        jobs = self._jobs(work, arrived)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for job in jobs:
            self._scheduler.submit(job)
        try:
            for _ in jobs:
                if not await self._until_finished(arrived, chunks, response):
                    break
            else:
                await response.write(DONE)
        finally:
            for job in jobs:
                self._scheduler.cancel(job)
        return response

    async def _until_finished(
        self, arrived: asyncio.Queue[tuple[int, Event]], chunks: Chunks, response: web.StreamResponse
    ) -> bool:
        """Write events until one of the sequences ends; False when it failed."""
        while True:
            match await arrived.get():
                case _, Progress() as progress:
                    await response.write(chunks.progress(progress))
                case index, Output() as output:
                    await response.write(chunks.output(index, output))
                case index, Finished() as finished:
                    await response.write(chunks.finished(index, finished))
                    return True
                case _, Failed():
                    await response.write(chunks.failed())
                    return False

    def _jobs(self, work: Work, arrived: asyncio.Queue[tuple[int, Event]]) -> list[Job]:
        loop = asyncio.get_running_loop()

        def emit(index: int, event: Event) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, (index, event))

        sequences = [(prompt, limit) for prompt, limit in zip(work.prompts, work.output_limits_tokens, strict=True)]
        return [
            Job(
                index=index,
                prompt=prompt,
                output_limit_tokens=limit,
                rules=work.rules.for_choice(index),
                emit=emit,
                stops=work.stops,
                grammar=work.grammar,
                top_logprobs=work.top_logprobs,
            )
            for index, (prompt, limit) in enumerate(each for each in sequences for _ in range(work.choices))
        ]

    async def _count(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        tokens = await asyncio.to_thread(chat_prompt, body, self._vocabulary, self._model.prompt_of)
        return _answer({"input_tokens": len(tokens)})

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        control = body.get("parse_special", True)
        tokens = await asyncio.to_thread(self._vocabulary.tokens, body["content"], control=control)
        if not body.get("with_pieces"):
            return _answer({"tokens": tokens})
        return _answer({"tokens": [{"id": token, "piece": self._spelling(token)} for token in tokens]})

    def _spelling(self, token: int) -> str | list[int]:
        raw = self._vocabulary.piece(token).raw
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return list(raw)

    async def _first_token(self, request: web.Request) -> web.StreamResponse:
        """One token from a prompt of token ids: what proves that the process serves."""
        body = await request.json()
        work = self._read({"prompt": body["prompt"], "max_tokens": 1, "temperature": 0}, False)
        arrived: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._scheduler.submit(self._jobs(work, arrived)[0])
        while True:
            match await arrived.get():
                case _, Finished() as finished:
                    return _answer({"tokens_predicted": finished.output_tokens})
                case _, Failed():
                    return _answer({"error": {"code": 500, "message": "The runtime failed."}}, status=500)

    async def _props(self, _: web.Request) -> web.StreamResponse:
        # A template may know tools; this engine does not read calls out of the output, so it offers none.
        return _answer({"chat_template_caps": {"supports_tools": False}})

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return _answer({"status": "ok"})

    def _read(self, body: dict[str, Any], chat: bool) -> Work:
        return read(
            body,
            chat=chat,
            vocabulary=self._vocabulary,
            prompt_of=self._model.prompt_of,
            context_tokens=self._options["context_tokens"],
        )

    def _started(self, job: Job) -> Sequence:
        return Sequence(
            job,
            self._model.sequence(job.limit_tokens),
            self._vocabulary,
            end_tokens=self._end_tokens,
            prefill_tokens=self._options["prefill_tokens"],
        )


def _answer(value: dict[str, Any], *, status: int = 200) -> web.Response:
    return web.Response(body=json.dumps(value).encode(), content_type="application/json", status=status)
