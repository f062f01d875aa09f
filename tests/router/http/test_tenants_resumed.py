"""Nobody gets another's answer when streams break while they are being gone on with elsewhere, many at once."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest

from shared.fleet import ServedModel
from shared.openai.sse import DONE
from shared.testing import answers
from shared.testing.answers import MODEL, Answer, End
from shared.testing.upstream import Exchange, Upstream
from tests.router.conftest import RunningRouter, StartRouter, eventually
from tests.simulation.questions import MARK, words_of

CALLERS = 72
AGENTS = 12
"""So many that some are left to go on when others are left alone for breaking three times in a row."""
LEAVES = 9
"""One caller of so many leaves in the middle of the part that another backend goes on with."""
DIGEST = "sha256:" + "d" * 64


class Breaking:
    """Backends that answer with the asker's own words, and break many streams at a place of their own; some of these a
    second time, where it is being gone on with."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._breaks: dict[str, int] = {}

    def answer(self, exchange: Exchange) -> Answer:
        body = orjson.loads(exchange.body)
        [mark] = MARK.findall(body["messages"][0]["content"])
        last, words = body["messages"][-1], words_of(mark)
        said = len(last["content"].split()) if last["role"] == "assistant" else 0
        rest = words[said:]
        broke = self._breaks.get(mark, 0)
        often = (0, 1, 1, 2)[int(mark[-1], 16) % 4]
        gap_s = self._draw.random() * 0.004
        if broke >= often or len(rest) < 2:
            return answers.stream(*rest, gap_s=gap_s)
        self._breaks[mark] = broke + 1
        end = self._draw.choice([End.RESET, End.CUT, End.CLEAN])
        return answers.broken_stream(*rest[: self._draw.randint(1, len(rest) - 1)], gap_s=gap_s, end=end)


@pytest.fixture
async def fleet(start_router: StartRouter, tmp_path: Path) -> AsyncIterator[tuple[RunningRouter, list[Upstream]]]:
    """Agents with the same weights, of which any goes on where another broke."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{name: act, act: {resume: true}}]\n")
    breaking = Breaking(seed=3)
    async with AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(Upstream(default=breaking.answer)) for _ in range(AGENTS)]
        router = await start_router(
            policy={"file": policy, "stale_after_ms": 60_000},
            retry={"budget_ratio": 1.0, "floor_per_10s": 10_000, "backoff_cap_ms": 1},
            # Every stream breaks: what is tried here is not when a backend is left alone for that.
            outliers={"least_attempts": 100_000},
        )
        models = (ServedModel(model_id=MODEL, context_tokens=4096, digest=DIGEST, features=("continuation",)),)
        for number, upstream in enumerate(upstreams):
            assert await router.report(upstream, f"edge-{number}", models=models) == 204
        yield router, upstreams


async def test_mt_01_a_stream_that_breaks_while_it_is_gone_on_with_stays_its_callers(
    fleet: tuple[RunningRouter, list[Upstream]],
) -> None:
    """MT-01: every caller reads its own words, in their order and once, whole or as a beginning; nobody else's."""
    router, upstreams = fleet
    draw = random.Random(5)
    marks = [f"mark-{draw.randbytes(6).hex()}" for _ in range(CALLERS)]

    async def call(number: int, mark: str) -> tuple[str, bool]:
        leaves = number % LEAVES == 0
        async with router.ask(f"I am {mark}.", stream=True) as response:
            assert response.status == 200, await response.read()
            received = b""
            async for piece in response.content.iter_any():
                received += piece
                if leaves and b": resumed on " in received:
                    response.close()
                    break
        assert set(MARK.findall(received.decode(errors="replace"))) <= {mark}
        data = [part[6:] for part in received.split(b"\n\n") if part.startswith(b"data: {")]
        # The last event of one who leaves may have been cut.
        chunks = [orjson.loads(each) for each in (data[:-1] if leaves else data)]
        assert len({chunk["id"] for chunk in chunks if "id" in chunk}) == 1
        said = "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk.get("choices", []))
        whole = received.endswith(DONE)
        assert said == "".join(words_of(mark)) if whole else "".join(words_of(mark)).startswith(said)
        return said, whole

    ended = await asyncio.gather(*(call(number, mark) for number, mark in enumerate(marks)))
    assert sum(whole for _, whole in ended) >= CALLERS // 2
    await eventually(lambda: router.in_flight() == 0 and router.metric("isthmus_router_in_flight") == 0)
    records = await router.records(CALLERS)
    resumed = Counter(record["resumed"] for record in records)
    assert resumed[1] >= 10 and resumed[2] >= 3, resumed
    for exchange in itertools.chain.from_iterable(upstream.exchanges for upstream in upstreams):
        assert len(set(MARK.findall(exchange.body.decode()))) == 1, "one caller's text went along with another's"
