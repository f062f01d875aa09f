"""A fleet under attack: echoing backends behind toxic proxies, a tormentor, and clients that check every byte.

A backend answers with numbered words that carry the asker's own mark, so that a reply to another tenant, a word twice
and a word lost all show in the text. What it answers depends on the request alone: a stream that goes on elsewhere
must read like one that never broke.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from shared.testing import answers
from shared.testing.answers import MODEL, Answer
from shared.testing.toxics import ToxicProxy
from shared.testing.upstream import Exchange

CARD = "4111 1111 1111 1111"
WORDS = 12
_MARK = re.compile(r"mark-[0-9a-f]{12}")


def echo(exchange: Exchange) -> Answer:
    """The words for whoever asks, from where a given beginning ends."""
    body = orjson.loads(exchange.body)
    marks = _MARK.findall(orjson.dumps(body["messages"][0]).decode())
    words = words_of(marks[0] if marks else "nobody")
    last = body["messages"][-1]
    if last["role"] == "assistant":
        words = words[len(last["content"].split()) :]
    if body.get("stream") is not True:
        return answers.completion("".join(words))
    return answers.stream(*words, gap_s=0.004)


def words_of(mark: str) -> list[str]:
    """The whole answer to the bearer of a mark."""
    return [f"{mark}/{n} " for n in range(WORDS)]


@dataclass
class Tally:
    """What the clients saw; `faults` are what must never be."""

    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def success_ratio(self) -> float:
        """Share of whole answers among the requests whose client stayed."""
        stayed = sum(n for end, n in self.ends.items() if end != "left")
        return self.ends["whole"] / stayed if stayed else 1.0


class Client:
    """Asks again and again, and holds each answer against what it must be."""

    def __init__(self, url: str, draw: random.Random, tally: Tally) -> None:
        self._url = url
        self._draw = draw
        self._tally = tally

    async def run(self, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        async with aiohttp.ClientSession() as http:
            while loop.time() < until_s:
                try:
                    async with asyncio.timeout(20):
                        await self._ask(http)
                except TimeoutError:
                    self._tally.ends["hung"] += 1
                    self._tally.faults.append("a request had no end within 20 s")
                except (aiohttp.ClientError, OSError):
                    self._tally.ends["left"] += 1  # the way to the router broke: that is this client's own trouble
                await asyncio.sleep(self._draw.random() * 0.02)

    async def _ask(self, http: aiohttp.ClientSession) -> None:
        mark = f"mark-{self._draw.randbytes(6).hex()}"
        stream, personal = self._draw.random() < 0.7, self._draw.random() < 0.3
        text = f"I am {mark}." + (f" My card is {CARD}." if personal else "")
        body = {"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": text}], "max_tokens": 64}
        async with http.post(self._url + "/v1/chat/completions", json=body) as response:
            if response.status != 200:
                await response.read()
                self._tally.ends[f"status {response.status}"] += 1
            elif not stream:
                said = (await response.json())["choices"][0]["message"]["content"]
                self._judge(mark, said, whole=True, errors=0)
            elif self._draw.random() < 0.1:
                await response.content.readany()
                response.close()
                self._tally.ends["left"] += 1
            else:
                self._read(mark, await response.read())
            if personal and response.headers.get("x-isthmus-tier") == "cloud":
                self._tally.faults.append("personal content was answered by the cloud")

    def _read(self, mark: str, received: bytes) -> None:
        data = [part[6:] for part in received.split(b"\n\n") if part.startswith(b"data: ")]
        done = data.count(b"[DONE]")
        chunks = [orjson.loads(each) for each in data if each != b"[DONE]"]
        errors = sum("error" in chunk for chunk in chunks)
        deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", [])]
        if len({chunk["id"] for chunk in chunks if "id" in chunk}) > 1:
            self._tally.faults.append("a stream had two ids")
        if done + errors != 1:
            self._tally.faults.append(f"a stream ended with {done} markers and {errors} errors")
        self._judge(mark, "".join(delta.get("content") or "" for delta in deltas), whole=done == 1, errors=errors)

    def _judge(self, mark: str, said: str, *, whole: bool, errors: int) -> None:
        wanted = "".join(words_of(mark))
        self._tally.ends["whole" if whole and not errors else "broken"] += 1
        if set(_MARK.findall(said)) - {mark}:
            self._tally.faults.append("a reply was meant for another")
        elif said != wanted if whole else not wanted.startswith(said):
            self._tally.faults.append("text was lost or came twice")


async def torment(backends: list[ToxicProxy], front: ToxicProxy, draw: random.Random, until_s: float) -> Counter[str]:
    """Spoil one connection after the other until the time is over; how often each toxic was used. One backend of a
    tier is spoilt at a time, so that policy always has somewhere to go."""
    loop, used = asyncio.get_running_loop(), Counter[str]()
    toxics: dict[str, Any] = {
        "latency": lambda proxy: setattr(proxy, "latency_s", 0.03),
        "cut": ToxicProxy.cut,
        "reset": ToxicProxy.reset,
        "half-open": lambda proxy: setattr(proxy, "silent", True),
        "slow close": lambda proxy: setattr(proxy, "slow_close_s", 0.3),
    }
    while loop.time() < until_s:
        name = draw.choice(list(toxics))
        proxy = front if draw.random() < 0.1 and name in ("latency", "cut", "reset") else draw.choice(backends)
        toxics[name](proxy)
        used[name] += 1
        await asyncio.sleep(0.2 + draw.random() * 0.6)
        proxy.heal()
        if name == "half-open":
            proxy.reset()  # nothing that was swallowed comes back
        await asyncio.sleep(0.1 + draw.random() * 0.3)
    return used
