"""Builds request number N of a run: the same bytes for the same seed, whichever user or worker sends it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from loadtests.workload import texts
from loadtests.workload.canaries import Marker
from loadtests.workload.scenario import Kind, Scenario, Sizes

_CHAT, _COMPLETIONS, _EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look up one entry of the catalogue.",
        "parameters": {
            "type": "object",
            "properties": {"entry": {"type": "string", "description": "Name of the entry."}},
            "required": ["entry"],
        },
    },
}


@dataclass(frozen=True, slots=True)
class Planned:
    """One request as it will be sent. `canary` is what must not reach the cloud, None where nothing is personal."""

    number: int
    kind: Kind
    path: str
    body: bytes
    streamed: bool
    canary: str | None


class Workload:
    """All requests of a run, by number."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        model: str,
        adapters: tuple[str, ...] = (),
        marker: Marker,
        seed: int,
        max_tokens: int | None = None,
        canary_ratio: float | None = None,
    ) -> None:
        self._scenario = scenario
        self._kinds, self._weights = tuple(scenario.mix), tuple(scenario.mix.values())
        self._model = model
        self._adapters = adapters or (model,)
        self._marker = marker
        self._seed = seed
        self._max_tokens = max_tokens
        self._canary_ratio = scenario.canary_ratio if canary_ratio is None else canary_ratio

    def request(self, number: int, kind: Kind | None = None) -> Planned:
        """Request `number`; its kind is drawn by the scenario's mix unless one is given."""
        dice = random.Random(f"{self._seed}:{number}")  # noqa: S311 - a seeded workload, no secret
        drawn = dice.choices(self._kinds, self._weights)[0]
        kind = kind or drawn
        personal = kind is Kind.PRIVACY or dice.random() < self._canary_ratio
        canary = self._marker.canary(dice) if personal else None
        body = _BODIES[kind](self, dice, self._scenario.sizes_of(kind), canary)
        path = {Kind.COMPLETIONS: _COMPLETIONS, Kind.EMBEDDINGS: _EMBEDDINGS}.get(kind, _CHAT)
        return Planned(number, kind, path, orjson.dumps(body), kind is not Kind.EMBEDDINGS, canary)

    def _question(self, dice: random.Random, sizes: Sizes, canary: str | None) -> str:
        return _with(texts.question(dice, sizes.prompt.draw(dice)), canary)

    def _common(self, dice: random.Random, sizes: Sizes, model: str) -> dict[str, Any]:
        return {
            "model": model,
            "max_tokens": self._max_tokens or sizes.output.draw(dice),
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def _chat(self, dice: random.Random, sizes: Sizes, canary: str | None) -> dict[str, Any]:
        messages = [{"role": "user", "content": self._question(dice, sizes, canary)}]
        return {"messages": messages, **self._common(dice, sizes, self._model)}

    def _adapter(self, dice: random.Random, sizes: Sizes, canary: str | None) -> dict[str, Any]:
        return {**self._chat(dice, sizes, canary), "model": dice.choice(self._adapters)}

    def _rag(self, dice: random.Random, sizes: Sizes, canary: str | None) -> dict[str, Any]:
        """Passages, then a question about them; the canary hides in the middle of the passages."""
        left = sizes.prompt.draw(dice)
        passages = [texts.words(dice, min(120, left - at)) for at in range(0, left, 120)]
        passages[len(passages) // 2] = _with(passages[len(passages) // 2], canary)
        shown = "\n\n".join(f"Passage {place}: {text}" for place, text in enumerate(passages, start=1))
        messages = [
            {"role": "system", "content": "Answer from the passages alone."},
            {"role": "user", "content": f"{shown}\n\n{texts.question(dice, 16)}"},
        ]
        return {"messages": messages, **self._common(dice, sizes, self._model)}

    def _agent(self, dice: random.Random, sizes: Sizes, canary: str | None) -> dict[str, Any]:
        """A conversation of one to three tool calls; the canary is in a tool's result."""
        left = sizes.prompt.draw(dice)
        messages: list[dict[str, Any]] = [{"role": "user", "content": texts.question(dice, 24)}]
        steps = dice.randint(1, 3)
        for step in range(steps):
            entry = orjson.dumps({"entry": texts.words(dice, 2)}).decode()
            call = {"id": f"call_{step}", "type": "function", "function": {"name": "look_up", "arguments": entry}}
            result = _with(texts.words(dice, max(4, left // steps)), canary if step == steps - 1 else None)
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": result})
        return {"messages": messages, "tools": [_TOOL], **self._common(dice, sizes, self._model)}

    def _completion(self, dice: random.Random, sizes: Sizes, canary: str | None) -> dict[str, Any]:
        return {"prompt": self._question(dice, sizes, canary), **self._common(dice, sizes, self._model)}

    def _embedding(self, dice: random.Random, sizes: Sizes, canary: str | None) -> dict[str, Any]:
        parts = [texts.words(dice, sizes.prompt.draw(dice)) for _ in range(dice.randint(1, 4))]
        return {"model": self._model, "input": [_with(parts[0], canary), *parts[1:]]}


def _with(text: str, canary: str | None) -> str:
    return text if canary is None else f"{text} My own: {canary}."


_Body = Callable[[Workload, random.Random, Sizes, "str | None"], dict[str, Any]]
_BODIES: Mapping[Kind, _Body] = {
    Kind.CHAT: Workload._chat,
    Kind.RAG: Workload._rag,
    Kind.AGENT: Workload._agent,
    Kind.COMPLETIONS: Workload._completion,
    Kind.EMBEDDINGS: Workload._embedding,
    Kind.ADAPTERS: Workload._adapter,
    Kind.PRIVACY: Workload._chat,
}
