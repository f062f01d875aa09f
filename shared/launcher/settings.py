"""Settings of `isthmus up`, and where the tiers it starts will listen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from shared.settings import SectionSettings, home, load_part

TierName = Literal["edge", "router", "cloud"]
OptionalTier = Literal["edge", "cloud"]
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not bound


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ReadyLimits(_Section):
    """How long each tier may take until it is ready."""

    edge: float = Field(90, gt=0, description="Seconds for the edge agent.")
    router: float = Field(60, gt=0, description="Seconds for the router.")
    cloud: float = Field(600, gt=0, description="Seconds for the cloud tier; a first start compiles and loads vLLM.")

    def of(self, tier: TierName) -> float:
        """The limit of `tier`."""
        return {"edge": self.edge, "router": self.router, "cloud": self.cloud}[tier]


class RestartSettings(_Section):
    """How a tier that crashed after it was ready is started again."""

    base_s: float = Field(0.5, gt=0, description="Upper bound of the first wait; it doubles with each crash.")
    cap_s: float = Field(30, gt=0, description="Longest wait.")
    stable_s: float = Field(60, gt=0, description="A tier that ran this long starts again with the first wait.")


class UpSettings(SectionSettings, section="up"):
    """Section `up` of the settings file."""

    tiers: Annotated[tuple[OptionalTier, ...], NoDecode] = Field(
        ("edge", "cloud"), min_length=1, description="Tiers beside the router, as a list or separated by commas."
    )
    run_dir: Path | None = Field(None, description="Folder of logs and the control socket; unset: $ISTHMUS_HOME/run.")
    ready_limits_s: ReadyLimits = Field(default_factory=ReadyLimits)
    restart: RestartSettings = Field(default_factory=RestartSettings)
    stop_limit_s: float = Field(20, gt=0, description="Time that tiers get to drain on Ctrl-C before they are killed.")
    log_bytes: int = Field(64 * 1024**2, ge=64 * 1024, description="Size at which a tier's log file starts again.")
    kept_runs: int = Field(5, ge=1, description="Folders of earlier runs that are kept.")

    @field_validator("tiers", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        return value

    @property
    def folder(self) -> Path:
        """The run folder in force."""
        return (self.run_dir or home() / "run").absolute()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a tier listens; `client_host` is where this machine reaches it."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Base URL for a client on this machine."""
        host = _WILDCARDS.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


class _EdgePart(SectionSettings, section="edge"):
    model_config = SettingsConfigDict(extra="ignore")
    host: str = "127.0.0.1"
    port: int = Field(8081, ge=1, le=65535)
    thermal: dict[str, Any] = Field(default_factory=dict)


class _RouterPart(SectionSettings, section="router"):
    model_config = SettingsConfigDict(extra="ignore")
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=1, le=65535)


class _CloudPart(SectionSettings, section="cloud"):
    model_config = SettingsConfigDict(extra="ignore")
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=1, le=65535)


_PARTS: dict[TierName, type[_EdgePart | _RouterPart | _CloudPart]] = {
    "edge": _EdgePart,
    "router": _RouterPart,
    "cloud": _CloudPart,
}


def address_of(tier: TierName, config: Path | None) -> Address:
    """Where `tier` will listen, by the same file and environment that it reads itself."""
    part = load_part(_PARTS[tier], tier, config)
    return Address(part.host, part.port)


def sensor_roots(config: Path | None) -> list[str]:
    """The sensor trees that the edge agent is configured to read."""
    roots = load_part(_EdgePart, "edge", config).thermal.get("roots", ["/sys"])
    return [str(root) for root in roots]
