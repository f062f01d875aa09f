"""What clients under attack ask, what a backend answers, and how an answer is judged: by every byte of its text.

A backend answers with numbered words that carry the asker's own mark, so that a reply to another tenant, a word twice
and a word lost all show in the text. What it answers depends on the request alone: a stream that goes on elsewhere
must read like one that never broke. Half of the tenants may have cards masked; every card is drawn from its asker's
mark, so that one that comes back to another shows too.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from shared.keys import hashed
from shared.testing.answers import MODEL

MARK = re.compile(r"mark-[0-9a-f]{12}")
CARD = re.compile(r"\b4[0-9]{3} [0-9]{4} [0-9]{4} [0-9]{4}\b")
WORDS = 12
LEFT, WHOLE, BROKEN, HUNG, REFUSED = "left", "whole", "broken", "hung", "503 privacy_unavailable"
_CARD_OR_PLACEHOLDER = re.compile(rf"{CARD.pattern}|\[CARD_[0-9]+\]")
_LEAVING_RATIO, _PERSONAL_RATIO, _STREAM_RATIO = 0.1, 0.3, 0.7
_TURNS = 20
"""Requests of one client in one session. All tenants have the same session ids."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One caller of the routers. `masks`: its cards may travel behind placeholders; others' stay on the edge."""

    name: str
    masks: bool

    @property
    def key(self) -> str:
        return f"isk-of-{self.name}"

    def settings(self) -> dict[str, Any]:
        """Its key as routers are told of it: with limits that are counted, and never reached."""
        limits = {"requests_per_minute": 10_000_000, "tokens_per_minute": 10_000_000_000, "concurrent": 10_000}
        return {"name": self.name, "sha256": hashed(self.key), **limits}


TENANTS = (Tenant("plain-1", False), Tenant("masked-1", True), Tenant("plain-2", False), Tenant("masked-2", True))
POLICY = """
rules:
  - {name: masked, match: {class: personal, key: "masked-*"}, act: {action: mask, resume: true, hedge_ms: 500}}
  - {name: chaos, act: {resume: true, hedge_ms: 500}}
"""


def words_of(mark: str, card: str | None = None) -> list[str]:
    """The whole answer to the bearer of a mark, who may have named a card."""
    return [f"{mark}/{n} " for n in range(WORDS)] + ([] if card is None else [f"card {card} "])


def echoed(body: Mapping[str, Any]) -> list[str]:
    """The words for whoever asks, from where a given beginning ends."""
    asked, last = body["messages"][0]["content"], body["messages"][-1]
    marks, cards = MARK.findall(asked), _CARD_OR_PLACEHOLDER.findall(asked)
    words = words_of(marks[0] if marks else "nobody", cards[0] if cards else None)
    said = last["content"] if last["role"] == "assistant" else ""
    while words and said:
        said = said.removeprefix(words.pop(0))
    return words


@dataclass(frozen=True, slots=True)
class Question:
    """One request of a tenant, and what its client does with the answer."""

    tenant: Tenant
    mark: str
    card: str | None
    stream: bool
    leaves: bool
    session: str

    def body(self) -> bytes:
        text = f"I am {self.mark}." + (f" My card is {self.card}." if self.card else "")
        turns = [{"role": "user", "content": text}]
        return orjson.dumps({"model": MODEL, "stream": self.stream, "messages": turns, "max_tokens": 64})

    def headers(self) -> dict[str, str]:
        session = {"X-Session-Id": self.session} if self.tenant.masks else {}
        return {"Authorization": f"Bearer {self.tenant.key}", "Content-Type": "application/json", **session}


class Asker:
    """Draws the questions of one client."""

    def __init__(self, tenant: Tenant, draw: random.Random) -> None:
        self._tenant = tenant
        self._draw = draw
        self._asked = 0

    def next(self) -> Question:
        draw, mark = self._draw, f"mark-{self._draw.randbytes(6).hex()}"
        self._asked += 1
        stream = draw.random() < _STREAM_RATIO
        return Question(
            self._tenant,
            mark,
            _card_of(mark) if draw.random() < _PERSONAL_RATIO else None,
            stream,
            stream and draw.random() < _LEAVING_RATIO,
            f"session-{self._asked // _TURNS}",
        )


@dataclass
class Tally:
    """What the clients saw; `faults` are what must never be."""

    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def success_ratio(self) -> float:
        """Share of whole answers among the requests whose client stayed and that policy allowed somewhere."""
        allowed = sum(n for end, n in self.ends.items() if end not in (LEFT, REFUSED))
        return self.ends[WHOLE] / allowed if allowed else 1.0

    @property
    def refused_ratio(self) -> float:
        """Share of those that no agent could serve, and that must not leave the edge."""
        return self.ends[REFUSED] / max(1, self.ends.total())

    def hung(self) -> None:
        """A request had no end."""
        self.ends[HUNG] += 1
        self.faults.append("a request had no end")

    def take(self, asked: Question, status: int, tier: str | None, received: bytes) -> None:
        """Judge an answer that was read to its end, or as far as its client stayed."""
        if status != 200:
            self.ends[f"{status} {orjson.loads(received)['error']['code']}"] += 1
            return
        if asked.card is not None and not asked.tenant.masks and tier == "cloud":
            self.faults.append("personal content was answered by the cloud")
        if set(MARK.findall(received.decode(errors="replace"))) - {asked.mark}:
            self.faults.append("a reply was meant for another")
        if asked.leaves:
            self.ends[LEFT] += 1
        elif asked.stream:
            self._stream(asked, received)
        else:
            self._text(asked, orjson.loads(received)["choices"][0]["message"]["content"], whole=True)

    def _stream(self, asked: Question, received: bytes) -> None:
        data = [part[6:] for part in received.split(b"\n\n") if part.startswith(b"data: ")]
        done = data.count(b"[DONE]")
        chunks = [orjson.loads(each) for each in data if each != b"[DONE]"]
        errors = sum("error" in chunk for chunk in chunks)
        deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", [])]
        if len({chunk["id"] for chunk in chunks if "id" in chunk}) > 1:
            self.faults.append("a stream had two ids")
        if done + errors != 1:
            self.faults.append(f"a stream ended with {done} markers and {errors} errors")
        self._text(asked, "".join(delta.get("content") or "" for delta in deltas), whole=done == 1)

    def _text(self, asked: Question, said: str, *, whole: bool) -> None:
        wanted = "".join(words_of(asked.mark, asked.card))
        self.ends[WHOLE if whole else BROKEN] += 1
        if set(CARD.findall(said)) - {asked.card}:
            self.faults.append("a card came back to another")
        elif said != wanted if whole else not wanted.startswith(said):
            self.faults.append("text was lost or came twice")

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {"ends": dict(self.ends), "faults": self.faults[:20]}

    def add(self, plain: Mapping[str, Any]) -> None:
        """Add what `plain` gave elsewhere."""
        self.ends.update(plain["ends"])
        self.faults.extend(plain["faults"])


def askers(count: int, seed: int) -> Sequence[Asker]:
    """So many clients, of all tenants in turn."""
    return [Asker(TENANTS[n % len(TENANTS)], random.Random(seed * 1000 + n)) for n in range(count)]


def _card_of(mark: str) -> str:
    """A card number of that bearer alone, with the check digit of Luhn."""
    digits = "4" + str(int(mark.removeprefix("mark-"), 16) % 10**14).zfill(14)
    doubled = [int(each) * (2 - n % 2) for n, each in enumerate(digits)]
    number = digits + str(-sum(each - 9 * (each > 9) for each in doubled) % 10)
    return " ".join(number[at : at + 4] for at in range(0, 16, 4))
