"""Says how long prompts and answers are: a stated distribution, drawn with the random numbers of one request."""

from __future__ import annotations

import math
import random

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Lengths(BaseModel):
    """Tokens, log-normally distributed around `median` and clipped to `[least, most]`.

    `sigma` is the standard deviation of the logarithm; 0 makes every length the median. Published traces of chat and
    retrieval traffic fit such curves with sigma between 0.4 and 1.2.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    median: float = Field(gt=0, le=1_000_000)
    sigma: float = Field(default=0.0, ge=0, le=3)
    least: int = Field(default=1, ge=1)
    most: int = Field(default=1_000_000, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _in_order(self) -> Lengths:
        if not self.least <= self.median <= self.most:
            raise ValueError("median must lie between least and most")
        return self

    def draw(self, dice: random.Random) -> int:
        """One length in tokens."""
        drawn = self.median * math.exp(self.sigma * dice.gauss(0.0, 1.0))
        return max(self.least, min(self.most, round(drawn)))
