"""Settings of the load test: the `loadtest` section."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from shared.settings import SectionSettings


class LoadtestSettings(SectionSettings, section="loadtest"):
    """What to send, where, and when to give up."""

    host: str = Field(
        default="http://127.0.0.1:8080",
        pattern=r"^https?://[^\s/@]+/?$",
        description="Base address of what is tested: router, edge agent or cloud tier.",
    )
    model: str = Field(default="smollm2-135m-instruct", min_length=1, description="Model id of every request.")
    route: str | None = Field(
        default=None,
        pattern=r"^(auto|edge|cloud)$",
        description="Value of `x-isthmus-route`; none sends no such header.",
    )
    api_key: SecretStr | None = Field(default=None, description="Key sent as a bearer token.")
    users: int = Field(default=4, ge=1, le=100_000, description="Streaming users at once.")
    spawn_rate: float = Field(default=50.0, gt=0, description="Users started a second.")
    duration_s: int = Field(default=30, ge=1, le=86_400, description="Length of the run; it always ends.")
    think_s: float = Field(default=0.0, ge=0, le=3_600, description="Pause of a user after a good answer.")
    failure_pause_s: float = Field(
        default=0.5, ge=0, le=3_600, description="Pause of a user after a failed answer, so that faults do not spin."
    )
    max_tokens: int = Field(default=32, ge=1, le=1_000_000, description="Output tokens asked for.")
    connect_s: float = Field(default=5.0, gt=0, le=600, description="Limit for opening a connection.")
    stall_s: float = Field(
        default=30.0, gt=0, le=3_600, description="Silence (no answer, or no content) that counts as a stall."
    )
    total_s: float = Field(default=300.0, gt=0, le=86_400, description="Limit for one whole answer.")
    report: Path | None = Field(default=None, description="File for the JSON report.")
