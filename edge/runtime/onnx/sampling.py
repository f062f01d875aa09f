"""Chooses the next token from a row of logits, by the rules that the OpenAI fields name.

Done here and not by the runtime, whose own search knows no bias, no penalties by presence and frequency, no seed for
one request and gives no log-probabilities. Order as in llama.cpp and vLLM: grammar, bias, penalties, temperature,
top-k, top-p, min-p. Log-probabilities are those of the model, before any of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
_GREEDY_BELOW = 1e-5


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """The fields of one request. A bias of minus infinity bans a token. Penalties look at the last
    `penalty_window_tokens` of prompt and answer, or at all of them (None)."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    penalty_window_tokens: int | None = None
    bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None

    def for_choice(self, index: int) -> SamplingRules:
        """The rules of choice `index`: with a seed, each choice draws its own and repeatable numbers."""
        return self if self.seed is None or index == 0 else replace(self, seed=self.seed + index)


class Sampler:
    """Draws the tokens of one sequence. `prompt` counts for the repetition penalty alone."""

    def __init__(self, rules: SamplingRules, prompt: list[int]) -> None:
        self._rules = rules
        self._prompt = prompt
        self._drawn: list[int] = []
        self._random = np.random.default_rng(rules.seed)
        self._bias_ids = np.fromiter(rules.bias.keys(), dtype=np.int64, count=len(rules.bias))
        self._bias = np.fromiter(rules.bias.values(), dtype=np.float32, count=len(rules.bias))

    def draw(self, logits: Row, allowed: Mask | None = None) -> int:
        """The next token; `allowed` is the grammar's mask. `logits` is left as it is."""
        row = logits.astype(np.float32, copy=True)
        if allowed is not None:
            row[~allowed] = -np.inf
        if len(self._bias_ids):
            row[self._bias_ids] += self._bias
        self._penalise(row)
        token = int(row.argmax()) if self._rules.temperature < _GREEDY_BELOW else self._drawn_from(row)
        self._drawn.append(token)
        return token

    def _penalise(self, row: Row) -> None:
        rules = self._rules
        if rules.repetition_penalty == 1.0 and not (rules.presence_penalty or rules.frequency_penalty):
            return
        prompt, drawn = self._recent()
        if rules.repetition_penalty != 1.0:
            seen = np.unique(np.asarray([*prompt, *drawn], dtype=np.int64))
            values = row[seen]
            row[seen] = np.where(values > 0, values / rules.repetition_penalty, values * rules.repetition_penalty)
        ids, counts = np.unique(np.asarray(drawn, dtype=np.int64), return_counts=True)
        row[ids] -= rules.presence_penalty + rules.frequency_penalty * counts.astype(np.float32)

    def _recent(self) -> tuple[list[int], list[int]]:
        """The tokens of prompt and answer that penalties look at."""
        window = self._rules.penalty_window_tokens
        if window is None:
            return self._prompt, self._drawn
        drawn = self._drawn[-window:] if window else []
        left = window - len(drawn)
        return self._prompt[-left:] if left else [], drawn

    def _drawn_from(self, row: Row) -> int:
        rules = self._rules
        row /= np.float32(rules.temperature)
        if 0 < rules.top_k < len(row):
            kept = np.argpartition(row, -rules.top_k)[-rules.top_k :]
        else:
            kept = np.flatnonzero(row > -np.inf)
        kept = kept[np.argsort(-row[kept], kind="stable")]
        chances = softmax(row[kept].astype(np.float64))
        if rules.top_p < 1.0:
            # The smallest set that reaches top_p, the token that crosses it included.
            within = max(1, int(np.searchsorted(np.cumsum(chances), rules.top_p)) + 1)
            kept, chances = kept[:within], chances[:within]
        if rules.min_p > 0.0:
            enough = chances >= rules.min_p * chances[0]
            kept, chances = kept[enough], chances[enough]
        return int(kept[self._random.choice(len(kept), p=chances / chances.sum())])


def softmax(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Probabilities of a row of logits."""
    shifted = np.exp(row - row.max())
    chances: npt.NDArray[np.float64] = shifted / shifted.sum()
    return chances


def log_probabilities(logits: Row, token: int, top: int) -> tuple[float, list[tuple[int, float]]]:
    """Natural log-probability of `token`, and the `top` most likely tokens with theirs."""
    row = logits.astype(np.float64)
    row -= row.max()
    row -= np.log(np.exp(row).sum())
    best = np.argpartition(row, -top)[-top:] if 0 < top < len(row) else np.arange(0)
    best = best[np.argsort(-row[best], kind="stable")]
    return float(row[token]), [(int(each), float(row[each])) for each in best]
