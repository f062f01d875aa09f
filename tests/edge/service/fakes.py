"""A scripted engine server on a Unix socket, and the `Engine` port in front of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from edge.memory.pressure import Step, shapes
from edge.packages.adapters.adapter import Adapter
from edge.runtime.drafting import Drafting
from edge.runtime.port import ChatTemplate, EngineConnection, EngineFacts, EngineState, EngineStatus
from edge.scheduling.speculation import SpeculationMode
from edge.scheduling.tuning import Tuning
from shared.errors import NotReady

MODEL = "smollm2-135m-instruct"
FACTS = EngineFacts(
    model_id=MODEL,
    digest="sha256:" + "0" * 64,
    architecture="llama",
    slots=1,
    context_tokens=2048,
    vocabulary_tokens=49152,
    features=frozenset({"tools", "structured_output", "logprobs", "lora"}),
    template=ChatTemplate(tools=True),
)
TIMINGS = {"cache_n": 0, "prompt_n": 40, "prompt_ms": 100.0, "predicted_n": 6, "predicted_ms": 50.0}
USAGE = {
    "completion_tokens": 6,
    "prompt_tokens": 40,
    "total_tokens": 46,
    "prompt_tokens_details": {"cached_tokens": 0},
}
CONTROL = {"<|im_end|>": 2, "<|im_start|>": 1}


def chunk(delta: dict[str, Any], *, index: int = 0, finish: str | None = None, **extra: Any) -> bytes:
    """One chat event as the engine sends it."""
    value = {
        "choices": [{"finish_reason": finish, "index": index, "delta": delta}],
        "created": 1,
        "id": "chatcmpl-1",
        "model": MODEL,
        "system_fingerprint": "b0",
        "object": "chat.completion.chunk",
        **extra,
    }
    return event(value)


def event(value: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


def progress(processed: int, total: int = 40) -> bytes:
    """A progress event: no content, role only."""
    role = {"role": "assistant", "content": None}
    return chunk(role, prompt_progress={"total": total, "cache": 0, "processed": processed, "time_ms": 1})


OPENING = chunk({"role": "assistant", "content": None})
CLOSING = event({"choices": [], "created": 1, "id": "chatcmpl-1", "model": MODEL, "usage": USAGE, "timings": TIMINGS})
DONE = b"data: [DONE]\n\n"


def answer_of(*texts: str, finish: str = "stop") -> list[bytes]:
    """A whole good answer."""
    return [
        progress(0),
        progress(40),
        OPENING,
        *(chunk({"content": text}) for text in texts),
        chunk({}, finish=finish),
        CLOSING,
        DONE,
    ]


Script = Callable[["Exchange"], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Exchange:
    """One generation request at the engine."""

    request: web.Request
    body: dict[str, Any]
    sent: int = 0
    left: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(self.request)
        return response

    async def write(self, response: web.StreamResponse, data: bytes) -> None:
        await response.write(data)
        self.sent += 1


def plays(events: list[bytes], *, gap_s: float = 0.0, then: str = "end") -> Script:
    """Send `events`; `then`: end (close the body), cut (reset the connection) or hang."""

    async def script(exchange: Exchange) -> web.StreamResponse:
        response = await exchange.open()
        for data in events:
            await exchange.write(response, data)
            await asyncio.sleep(gap_s)
        if then == "cut" and exchange.request.transport is not None:
            exchange.request.transport.abort()
        if then == "hang":
            await asyncio.Event().wait()
        return response

    return script


def says(status: int, error: dict[str, Any]) -> Script:
    """An answer that is an error."""

    async def script(_: Exchange) -> web.StreamResponse:
        return web.json_response({"error": error}, status=status)

    return script


class EngineServer:
    """The engine's HTTP server. Each generation takes the next script; with none left, `default`."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self.default: Script = plays(answer_of("Pa", "ris", "."))
        self.scripts: deque[Script] = deque()
        self.exchanges: list[Exchange] = []
        self.asked: list[str] = []
        self.supports_tools = True
        self.metrics: str | None = None
        """What it says at /metrics; None: it has no such route."""
        self.open = 0
        self.most_open = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 24)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._generate),
                web.post("/v1/completions", self._generate),
                web.post("/v1/chat/completions/input_tokens", self._count),
                web.post("/tokenize", self._tokenize),
                web.get("/props", self._props),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.socket_path)).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange(request, orjson.loads(await request.read()))
        self.exchanges.append(exchange)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        script = self.scripts.popleft() if self.scripts else self.default
        try:
            return await script(exchange)
        except (asyncio.CancelledError, ConnectionError):
            exchange.left = True
            raise
        finally:
            self.open -= 1
            exchange.ended.set()

    async def _count(self, request: web.Request) -> web.StreamResponse:
        self.asked.append("count")
        body = orjson.loads(await request.read())
        return web.json_response({"input_tokens": sum(len(m["content"]) for m in body["messages"])})

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        self.asked.append("tokenize")
        body = orjson.loads(await request.read())
        return web.json_response({"tokens": _pieces(body["content"], control=body["parse_special"])})

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=404) if self.metrics is None else web.Response(text=self.metrics)

    async def _props(self, _: web.Request) -> web.StreamResponse:
        caps = {"supports_tools": self.supports_tools, "supports_tool_calls": self.supports_tools}
        return web.json_response({"chat_template_caps": caps})


def _pieces(text: str, *, control: bool) -> list[dict[str, Any]]:
    """A tokenizer with one token a character, and the control tokens if they count."""
    pieces: list[dict[str, Any]] = []
    while text:
        spelling = next((c for c in CONTROL if control and text.startswith(c)), text[0])
        pieces.append({"id": CONTROL.get(spelling, 100 + ord(spelling[0])), "piece": spelling})
        text = text[len(spelling) :]
    return pieces


async def _at_once() -> None:
    """A swap that takes no time."""


class FakeEngine:
    """The `Engine` port over an `EngineServer`."""

    def __init__(self, server: EngineServer, facts: EngineFacts = FACTS) -> None:
        self.server = server
        self._status = EngineStatus(EngineState.STARTING)
        self._facts = facts
        self._listeners: list[Callable[[EngineStatus], None]] = []
        self.taken: list[tuple[int, int, bool]] = []
        self.loads: list[tuple[str, ...]] = []
        self.loading: Callable[[], Awaitable[None]] = _at_once
        self.failures: deque[Exception] = deque()
        self.threads_ratio = 1.0
        self.thread_swaps = 0
        self.signs_of_life = 0
        self.doubts = 0
        self.modes: list[SpeculationMode] = []
        self.overlaps: list[bool] = []
        self.tunings: list[Tuning] = []
        self.drafting: Drafting | None = None

    @property
    def status(self) -> EngineStatus:
        return self._status

    def connection(self) -> EngineConnection:
        if self._status.state is not EngineState.READY:
            raise NotReady("The model is not ready.", retry_after_s=self._status.retry_after_s)
        return EngineConnection(
            "http://engine", self.server.socket_path, {"Authorization": "Bearer s"}, self._facts.adapters
        )

    @contextlib.contextmanager
    def using(self) -> Iterator[EngineConnection]:
        yield self.connection()

    @property
    def speculates(self) -> bool:
        return True

    async def tune(self, tuning: Tuning) -> None:
        if self.failures:
            raise self.failures.popleft()
        self.tunings.append(tuning)

    async def speculate(self, mode: SpeculationMode, *, overlap: bool = True) -> None:
        if self.failures:
            raise self.failures.popleft()
        self.modes.append(mode)
        self.overlaps.append(overlap)
        self._facts = replace(self._facts, speculation=mode)
        self._status = replace(self._status, facts=self._facts)

    def heard(self) -> None:
        self.signs_of_life += 1

    def doubt(self) -> None:
        self.doubts += 1

    def subscribe(self, listener: Callable[[EngineStatus], None]) -> None:
        self._listeners.append(listener)

    def steps(self) -> tuple[Step, ...]:
        slots, context = self._facts.slots, self._facts.context_tokens
        served = tuple(Step(*shape, private_bytes=shape[0] * shape[1] * 5_000) for shape in shapes(slots, context, 512))
        return (*served, replace(served[-1], admits=False))

    async def take_step(self, step: Step, *, overlap: bool) -> None:
        self.taken.append((step.slots, step.context_tokens, overlap))
        if self.failures:
            raise self.failures.popleft()
        facts = replace(self._facts, slots=step.slots, context_tokens=step.context_tokens)
        self.set(EngineState.READY, facts=facts)

    def would_change_threads(self, ratio: float) -> bool:
        return ratio != self.threads_ratio

    async def use_threads(self, ratio: float) -> None:
        if self.failures:
            raise self.failures.popleft()
        self.threads_ratio = ratio
        self.thread_swaps += 1

    def set(self, state: EngineState, **changes: Any) -> None:
        self._status = replace(self._status, state=state, **changes)
        for listener in self._listeners:
            listener(self._status)

    @property
    def takes_adapters(self) -> bool:
        return "lora" in self._facts.features

    async def serve_adapters(self, adapters: tuple[Adapter, ...], *, overlap: bool) -> None:
        self.loads.append(tuple(str(adapter.name) for adapter in adapters))
        await self.loading()
        if self.failures:
            raise self.failures.popleft()
        self._facts = replace(self._facts, adapters=tuple(adapter.digest for adapter in adapters))
        self.set(EngineState.READY, facts=self._facts)

    async def start(self) -> None:
        self.set(EngineState.READY, facts=self._facts, pid=1)

    async def stop(self) -> None:
        self.set(EngineState.STOPPED)


@contextlib.asynccontextmanager
async def engine_server(folder: Path) -> AsyncIterator[EngineServer]:
    """A running engine server."""
    server = EngineServer(folder / "engine.sock")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
