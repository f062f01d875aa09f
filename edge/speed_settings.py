"""Settings of how the engine computes: `edge.engine` and `edge.speculation`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EngineSettings(_Part):
    """How the engine computes; what is left out follows from the device."""

    threads: int | None = Field(
        default=None, ge=1, le=256, description="Threads that decode; none: as measured, until then cores - 1."
    )
    threads_prefill: int | None = Field(
        default=None, ge=1, le=256, description="Threads that read prompts; none: as measured, until then all cores."
    )
    batch_tokens: int | None = Field(
        default=None,
        ge=32,
        le=4096,
        description="Prompt tokens read at once: others wait this long at most; none: as measured, until then 63.",
    )
    tune: bool = Field(
        default=True, description="Measure once, while idle, which threads and batch suit this device; kept afterwards."
    )
    tune_after_s: float = Field(default=20.0, ge=0, description="Idle time before that, or before it is gone on with.")
    profile: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="Profile that describes this device, to plan what its GPU computes; none: the engine's own way.",
    )
    deterministic: bool = Field(
        default=True,
        description="Greedy answers are the same with and without cache, resume and company; reads slower.",
    )
    sleep_after_s: int = Field(
        default=0, ge=0, le=7 * 24 * 3600, description="Idle time after which the engine frees its memory; 0: never."
    )


class SpeculationSettings(_Part):
    """Whether the engine proposes several tokens at a time, and when that counts as faster."""

    mode: Literal["auto", "off"] = Field(
        default="auto", description="auto: on only while measured to be faster on this device; off: never."
    )
    draft: str | None = Field(
        default=None, min_length=1, max_length=256, description="Installed package that may draft for the model."
    )
    draft_tokens: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Tokens that an n-gram kind proposes at once; at most what a batch holds of all slots.",
    )
    ngram_tokens: int = Field(
        default=6,
        ge=2,
        le=64,
        description="Last tokens that must have stood in the context before, to propose what followed.",
    )
    margin_ratio: float = Field(default=0.05, ge=0, le=1, description="Gain below which plain decoding is kept.")
    dwell_s: float = Field(default=30.0, ge=1, description="Shortest time between two changes.")
    retry_s: float = Field(default=900.0, ge=1, description="Wait before a kind that lost is tried again; it doubles.")
    shared_memory: bool = Field(
        default=False,
        description="Allow the kind that replays earlier answers: fast, but it lets one client learn of another's.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.retry_s < self.dwell_s:
            raise ValueError("retry_s must not be shorter than dwell_s")
        return self
