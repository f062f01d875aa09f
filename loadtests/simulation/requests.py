"""The requests of a simulated step: who asks, how much, how personal; the same ones for every policy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from loadtests.simulation.devices import Floats, Ints

PUBLIC, PERSONAL, UNKNOWN = range(3)
_CLASS_SHARES = (0.82, 0.16, 0.02)
"""Public, personal or secret, and not fully scanned."""
_KINDS = (
    # weight, median and sigma of prompt tokens, median and sigma of output tokens: chat, retrieval, agent
    (0.70, 60, 0.8, 120, 0.6),
    (0.15, 1_200, 0.4, 160, 0.5),
    (0.15, 400, 0.6, 80, 0.5),
)
_LEAST, _MOST_PROMPT, _MOST_OUTPUT = 8, 3_500, 700


@dataclass(frozen=True, slots=True)
class Asks:
    """Requests in the order of time: second of the day, device, tokens, class, and what chance does to each: `luck`
    below a device's loss ratio loses the first try, the factors stretch its round trip and its time on either tier.
    Decisions see `guessed_prompt` and `asked_output`, which routers know before the answer."""

    at_s: Floats
    device: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    privacy: Ints
    luck: Floats
    network_factor: Floats
    guessed_prompt: Ints
    asked_output: Ints
    edge_factor: Floats
    cloud_factor: Floats

    @classmethod
    def plain(cls, **columns: Any) -> Asks:
        """Requests whose lengths routers know, and which take as long as their device and cloud say."""
        ones = np.ones(len(columns["at_s"]))
        guessed = {"guessed_prompt": columns["prompt_tokens"], "asked_output": columns["output_tokens"]}
        return cls(**guessed, edge_factor=ones, cloud_factor=ones, **columns)

    def within(self, from_s: float, to_s: float) -> Asks:
        """Those of `[from_s, to_s)`."""
        part = slice(*np.searchsorted(self.at_s, (from_s, to_s)))
        return Asks(**{each.name: getattr(self, each.name)[part] for each in fields(self)})

    @property
    def size(self) -> int:
        """Requests."""
        return len(self.at_s)


def day_level(hour: float) -> float:
    """Requests of an hour relative to the day's mean: quiet nights, peaks at eleven and twenty."""
    bumps = np.exp(-(((hour - 11.0) / 2.8) ** 2)) + 1.15 * np.exp(-(((hour - 20.0) / 2.2) ** 2))
    return float(0.15 + 2.1 * bumps)


def asks_of_step(from_s: float, dt_s: float, *, devices: int, per_day: float, dice: np.random.Generator) -> Asks:
    """What is asked in `[from_s, from_s + dt_s)`: conversations of one to six turns that a device has within it."""
    mean_turns = 3.5
    rate = devices * per_day / 86_400 * day_level(from_s / 3600 % 24) / mean_turns
    talks = int(dice.poisson(rate * dt_s))
    turns = dice.integers(1, 7, talks)
    device = np.repeat(dice.integers(0, devices, talks), turns)
    start = np.repeat(dice.uniform(0, dt_s, talks), turns)
    total = int(turns.sum())
    place = np.arange(total) - np.repeat(np.cumsum(turns) - turns, turns)
    at_s = from_s + (start + place * dice.exponential(8.0, total)) % dt_s
    kind = dice.choice(len(_KINDS), size=total, p=[each[0] for each in _KINDS])
    table = np.array(_KINDS)[kind]
    prompt = table[:, 1] * np.exp(table[:, 2] * dice.standard_normal(total)) * (1 + 0.25 * place)
    output = table[:, 3] * np.exp(table[:, 4] * dice.standard_normal(total))
    order = np.argsort(at_s, kind="stable")
    return Asks.plain(
        at_s=at_s[order],
        device=device[order],
        prompt_tokens=np.clip(np.round(prompt), _LEAST, _MOST_PROMPT).astype(np.int64)[order],
        output_tokens=np.clip(np.round(output), _LEAST, _MOST_OUTPUT).astype(np.int64)[order],
        privacy=dice.choice(3, size=total, p=_CLASS_SHARES).astype(np.int64)[order],
        luck=dice.random(total)[order],
        network_factor=dice.lognormal(0.0, 0.5, total)[order],
    )
