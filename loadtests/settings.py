"""Settings of the load test: the `loadtest` section."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from loadtests.workload.arrivals import Shape
from shared.settings import SectionSettings

FaultName = Literal["edge-dies", "heat-ramp", "redis-frozen", "cloud-killed", "scale-to-zero", "router-restart"]
_ADDRESS = r"^https?://[^\s/@]+/?$"


class FaultCommand(BaseModel):
    """How a fault is brought about and ended where the stack is not of this machine: commands without a shell."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    begin: tuple[str, ...] = Field(min_length=1, description="Program and arguments that begin the fault.")
    end: tuple[str, ...] = Field(default=(), description="Program and arguments that end it; empty: it ends by itself.")


class TruthLimits(BaseModel):
    """Beyond these the load generator is what was measured, and the run is invalid."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cpu_ratio: float = Field(default=0.85, gt=0, le=1, description="Share of one core that a worker used.")
    lag_ms: float = Field(default=50.0, gt=0, description="How late a worker woke up, p95: the error of its times.")
    ceiling_ratio: float = Field(
        default=0.8, gt=0, le=1, description="Share of the answers a second that loadtests.bench.self measured here."
    )
    unfinished_ratio: float = Field(
        default=0.05, ge=0, le=1, description="Share of requests that the end of the run cut off, beyond one a user."
    )


class LoadtestSettings(SectionSettings, section="loadtest"):
    """What to send, where, and when to give up."""

    host: str = Field(
        default="http://127.0.0.1:8080",
        pattern=_ADDRESS,
        description="Base address of what is tested: router, edge agent or cloud tier.",
    )
    scenario: str = Field(default="chat", min_length=1, description="Name of a shipped scenario, or a YAML file.")
    model: str = Field(default="smollm2-135m-instruct", min_length=1, description="Model id of every request.")
    adapters: tuple[str, ...] = Field(
        default=(), description="Model ids of kind base:adapter; empty: asked from the tested host where one is needed."
    )
    route: str | None = Field(
        default=None,
        pattern=r"^(auto|edge|cloud)$",
        description="Value of `x-isthmus-route`; none sends no such header.",
    )
    api_key: SecretStr | None = Field(default=None, description="Key sent as a bearer token.")
    users: int = Field(default=4, ge=1, le=100_000, description="Users of a closed loop: each asks, reads, asks again.")
    rate_per_s: float | None = Field(
        default=None, gt=0, le=100_000, description="Requests a second of an open loop; unset: a closed loop."
    )
    shape: Shape = Field(default=Shape.CONSTANT, description="How users or rate go over the run.")
    seed: int | None = Field(
        default=None, ge=0, description="Same seed, same requests and moments; unset: drawn for each run."
    )
    run_id: str = Field(default="", max_length=64, description="Part of the canaries, so that runs differ.")
    spawn_rate: float = Field(default=50.0, gt=0, description="Users started a second.")
    duration_s: int = Field(default=30, ge=1, le=604_800, description="Length of the run; it always ends.")
    workers: int = Field(default=1, ge=1, le=256, description="Processes that send, on this machine.")
    think_s: float = Field(default=0.0, ge=0, le=3_600, description="Pause of a user after a good answer.")
    failure_pause_s: float = Field(
        default=0.5, ge=0, le=3_600, description="Pause of a user after a failed answer, so that faults do not spin."
    )
    max_tokens: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Output tokens asked for; unset: drawn as the scenario says."
    )
    canary_ratio: float | None = Field(
        default=None, ge=0, le=1, description="Share of requests with personal data; unset: as the scenario says."
    )
    personal: Literal["edge_only", "mask"] = Field(
        default="edge_only",
        description="What the tested policy does with personal data: where it is masked, the cloud may answer, and a "
        "recorder alone can tell a leak.",
    )
    retries: int = Field(
        default=0,
        ge=0,
        le=100,
        description="How often a 429 or 503 with Retry-After is waited for and sent again (OpenAI's client: 2); times "
        "include the waits. 0: each one is a failure.",
    )
    connect_s: float = Field(default=5.0, gt=0, le=600, description="Limit for opening a connection.")
    stall_s: float = Field(
        default=30.0, gt=0, le=3_600, description="Silence (no answer, or no content) that counts as a stall."
    )
    total_s: float = Field(default=300.0, gt=0, le=86_400, description="Limit for one whole answer.")
    gap_s: float = Field(default=1.0, gt=0, le=3_600, description="Silence between two texts that is counted.")
    report: Path | None = Field(default=None, description="File for the JSON report.")
    samples: Path | None = Field(default=None, description="File for the raw samples, one JSON object a line.")
    recorder: str | None = Field(
        default=None,
        pattern=_ADDRESS,
        description="Address of isthmus loadtest recorder; unset: looked for behind the tested router.",
    )
    redis: str | None = Field(default=None, description="Redis address as a URL, for the fault redis-frozen.")
    sensors: Path | None = Field(
        default=None, description="A sensor tree that the edge reads, for heat-ramp; unset: that of isthmus up."
    )
    fault_from_ratio: float = Field(default=0.3, ge=0, le=1, description="When faults begin, as a share of the run.")
    fault_to_ratio: float = Field(default=0.55, ge=0, le=1, description="When faults end, as a share of the run.")
    fault_commands: dict[FaultName, FaultCommand] = Field(
        default_factory=dict, description="How faults are brought about where isthmus up does not run the stack."
    )
    truth: TruthLimits = Field(default_factory=TruthLimits, description="Beyond these a run is invalid.")
