"""Settings of traces, the same in every tier."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Endpoint = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9._~%:\[\]-]+(/[^\s?#@]*)?$", max_length=512)]
FilePath = Annotated[str, StringConstraints(pattern="^/", max_length=4096)]


class TracingSettings(BaseModel):
    """Where spans go, and how many."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    endpoint: Endpoint | None = Field(
        default=None,
        description="Where spans are sent by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; unset: nowhere. "
        "Needs the extra otel.",
    )
    sample_ratio: float = Field(
        1.0, ge=0, le=1, description="Share of new traces that is recorded; a caller's own trace is as the caller says."
    )
    headers_file: FilePath | None = Field(
        default=None, description="Absolute path of a file with a line `Name: value` for each header of the collector."
    )
    ca_file: FilePath | None = Field(
        default=None, description="Absolute path of authorities to trust for https; unset: the usual ones."
    )
    queue_spans: int = Field(2048, ge=16, le=1_000_000, description="Spans that wait to be sent; more are dropped.")
    interval_s: float = Field(5, gt=0, description="How often spans are sent.")
    timeout_s: float = Field(10, gt=0, description="Longest time until the collector has taken a batch.")
    flush_limit_s: float = Field(
        2, ge=0, description="Longest wait at shutdown for the last spans; never beyond the drain limit."
    )
